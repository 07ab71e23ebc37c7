"""Tensors on the device that processes share: what one writes the other reads, and the other way round.

python3 tests/torch/shared.py      one line of results; each process has a session of its own
"""

import os
import time

import torch
import torch.multiprocessing as processes


def child(given, answers):
    small, large = given.get()
    answers.put((small.sum().item(), large.double().sum().item()))
    small.mul_(2)
    large[::1000] += 5
    torch.cuda.synchronize()
    answers.put("done")
    given.get()
    del small, large


def main():
    context = processes.get_context("spawn")
    given, answers = context.Queue(), context.Queue()
    other = context.Process(target=child, args=(given, answers))
    other.start()
    small = torch.arange(1000, device="cuda", dtype=torch.float32)
    large = torch.full((1 << int(os.environ.get("BITS", "24")),), 0.5, device="cuda")
    kept = torch.ones(77, device="cuda")
    given.put((small, large))
    told = answers.get(timeout=60)
    answers.get(timeout=60)
    print(*told, small.sum().item(), large.double().sum().item(), kept.sum().item(), sep="; ")
    # For whoever wants to look at both meanwhile.
    time.sleep(float(os.environ.get("PAUSE", "0")))
    given.put("end")
    other.join(60)
    print(other.exitcode, small[10].item(), sep="; ")


if __name__ == "__main__":
    main()
