#!/usr/bin/env python3
"""Asks the key-value server of kv.cu: kv_client.py PORT put KEY VALUE | get KEY | end."""

import secrets
import socket
import sys

ATTEMPTS, PATIENCE_S = 20, 0.5
# The server hears these only, as modules/nic/module.toml has it; the first half is for flows.
PORTS = range(7050, 7100)


def bind(peer: socket.socket) -> None:
    """Takes a port that the server hears."""
    for port in PORTS:
        try:
            peer.bind(("127.0.0.1", port))
            return
        except OSError:
            pass
    sys.exit(f"no port from {PORTS[0]} to {PORTS[-1]} is free")


def ask(port: int, request: str) -> str:
    """Sends a request until it is answered: by a datagram that begins with the same word."""
    tag = secrets.token_hex(4)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        bind(peer)
        peer.connect(("127.0.0.1", port))
        peer.settimeout(PATIENCE_S)
        for _ in range(ATTEMPTS):
            try:
                peer.send(f"{tag} {request}".encode())
                while True:
                    word, _, answer = peer.recv(2048).decode().partition(" ")
                    if word == tag:
                        return answer
            except (TimeoutError, ConnectionRefusedError):
                pass
    sys.exit(f"nobody answers at 127.0.0.1:{port}")


def main() -> None:
    if len(sys.argv) < 3 or not sys.argv[1].isdecimal():
        sys.exit(__doc__)
    words = [sys.argv[2].upper(), *sys.argv[3:]]
    print(ask(int(sys.argv[1]), " ".join(words)))


if __name__ == "__main__":
    main()
