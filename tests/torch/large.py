"""Times of PyTorch that is bound by the GPU, CPU time and memory, to be compared natively and in an isolated session.

python3 tests/torch/large.py times      a line for each figure
python3 tests/torch/large.py fill       how much memory tensors of 64 MiB can have, in MiB
python3 tests/torch/large.py hold       takes 1 GiB, says so, and waits for the end of its input
"""

import os
import resource
import statistics
import sys
import time

BEGUN = time.perf_counter()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from workloads import Gpt  # noqa: E402


def bulkheads():
    """Seconds of CPU that all processes of Bulkhead have had."""
    ticks = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/stat") as file:
                name, rest = file.read().rsplit(")", 1)
        except OSError:
            continue
        if name.split("(", 1)[1].startswith("bulkhead"):
            ticks += sum(map(int, rest.split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def cpu():
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime + bulkheads()


def measured(name, rounds, steps, step):
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    times, before = [], cpu()
    begun = time.perf_counter()
    for _ in range(rounds):
        at = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - at)
    whole = time.perf_counter() - begun
    print(f"{name}: {statistics.median(times) / steps * 1e3:.3f} ms")
    print(f"{name}, CPU time a step: {(cpu() - before) / (rounds * steps) * 1e3:.3f} ms")
    print(f"{name}, cores in use: {(cpu() - before) / whole:.2f} cores", flush=True)


class Bottleneck(torch.nn.Module):
    def __init__(self, width, inner, stride):
        super().__init__()
        norm, conv = torch.nn.BatchNorm2d, torch.nn.Conv2d
        self.main = torch.nn.Sequential(
            conv(width, inner, 1, bias=False), norm(inner), torch.nn.ReLU(True),
            conv(inner, inner, 3, stride, 1, bias=False), norm(inner), torch.nn.ReLU(True),
            conv(inner, 4 * inner, 1, bias=False), norm(4 * inner))
        same = width == 4 * inner and stride == 1
        self.short = torch.nn.Identity() if same else torch.nn.Sequential(
            conv(width, 4 * inner, 1, stride, bias=False), norm(4 * inner))

    def forward(self, x):
        return F.relu(self.main(x) + self.short(x), inplace=True)


def resnet50():
    """The network of He and others, 2015, of 50 layers."""
    parts = [torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU(True),
             torch.nn.MaxPool2d(3, 2, 1)]
    width = 64
    for inner, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            parts.append(Bottleneck(width, inner, stride if block == 0 else 1))
            width = 4 * inner
    return torch.nn.Sequential(*parts, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(width, 1000))


def trained(net, loss_of):
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4, fused=True)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(net)
        loss.backward()
        optimizer.step()
    return step


def times():
    a = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
    (a @ a).sum().item()
    print(f"first bf16 matmul, with the start of Python: {time.perf_counter() - BEGUN:.3f} s")
    b, c = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    measured("matmul 8192, bf16", 10, 20, lambda: b @ c)
    del b, c
    torch.backends.cudnn.benchmark = True
    net = resnet50().cuda().to(memory_format=torch.channels_last)
    x = torch.randn(128, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (128,), device="cuda")
    measured("ResNet-50, 128 images, a training step", 5, 5, trained(net, lambda n: F.cross_entropy(n(x), y)))
    del net, x
    net = Gpt(1024, 24, 50304, 1024).cuda()
    print(f"GPT: {sum(p.numel() for p in net.parameters()) / 1e6:.0f} M")
    text = torch.randint(0, 50304, (8, 1025), device="cuda")
    measured("GPT of 24 layers, width 1024, a training step", 5, 3, trained(
        net, lambda n: F.cross_entropy(n(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())))
    del net
    small, text = Gpt().cuda(), torch.randint(0, 512, (8, 129), device="cuda")
    measured("GPT of 4 layers, width 256, a training step", 5, 30, trained(
        small, lambda n: F.cross_entropy(n(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())))


def fill():
    tensors = []
    try:
        while True:
            tensors.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        print(f"tensors of 64 MiB: {64 * len(tensors)} MiB")


def hold():
    held = torch.zeros(1 << 28, device="cuda")
    torch.cuda.synchronize()
    print("held", held.nbytes, flush=True)
    sys.stdin.read()


{"times": times, "fill": fill, "hold": hold}[sys.argv[1]]()
