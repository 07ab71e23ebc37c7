#!/usr/bin/env python3
"""Asks the key-value server of kv.cu.

usage: kv_client.py [PORT] put KEY VALUE
       kv_client.py [PORT] get KEY
       kv_client.py [PORT] end

PORT is the server's on this machine: that of `bulkhead run --module nic=listen:PORT` (7000 unless told). The client takes
a port from 7050 to 7099 itself, since the server hears no others.
"""

import secrets
import socket
import sys

ATTEMPTS, PATIENCE_S, PORT = 20, 0.5, 7000
WORDS = {"put": 3, "get": 2, "end": 1}
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
    sys.exit(f"nobody answers at 127.0.0.1:{port}: is that the port of the server (`nic=listen:{port}`)?")


def main() -> None:
    words = sys.argv[1:]
    if "-h" in words or "--help" in words:
        print(__doc__, end="")
        return
    port = int(words.pop(0)) if words and words[0].isdecimal() else PORT
    if not 0 < port < 65536 or not words or len(words) != WORDS.get(words[0].lower()):
        sys.exit(__doc__)
    print(ask(port, " ".join([words[0].upper(), *words[1:]])))


if __name__ == "__main__":
    main()
