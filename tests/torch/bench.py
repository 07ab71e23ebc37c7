"""Times of PyTorch, to be compared natively and in an isolated session: medians of several rounds, one line each."""

import statistics
import time

import torch
import torch.nn.functional as F

from workloads import Gpt


def median(rounds, function):
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def training(net, x, loss_of, steps):
    optimizer = torch.optim.AdamW(net.parameters(), 3e-4, foreach=False)

    def some():
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(net, x).backward()
            optimizer.step()
    some()
    return median(7, some) / steps


def main():
    begun = time.perf_counter()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    print(f"first kernel: {time.perf_counter() - begun:.3f} s")
    x = torch.randn(64, 256, device="cuda")
    mlp = torch.nn.Sequential(*[m for _ in range(8) for m in (torch.nn.Linear(256, 256), torch.nn.ReLU())]).cuda()
    print(f"training step, MLP of 8 layers, eager: {training(mlp, x, lambda n, x: n(x).square().mean(), 50) * 1e6:.0f} us")
    text = torch.randint(0, 512, (8, 129), device="cuda")
    loss = lambda n, t: F.cross_entropy(n(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten())  # noqa: E731
    print(f"training step, GPT of 4 layers, eager: {training(Gpt().cuda(), text, loss, 20) * 1e6:.0f} us")
    one = torch.zeros(1, device="cuda")

    def launches():
        for _ in range(20000):
            one.add_(1)
    print(f"one.add_(1): {median(5, launches) / 20000 * 1e6:.2f} us")

    def items():
        for _ in range(1000):
            one.item()
    print(f"item(): {median(5, items) / 1000 * 1e6:.2f} us")
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def product():
        for _ in range(10):
            a @ b
    product()
    seconds = median(5, product) / 10
    print(f"matmul 8192, bf16: {seconds * 1e6:.0f} us, {2 * 8192**3 / seconds / 1e12:.0f} TFLOP/s")
    net, tokens = Gpt().cuda().eval(), torch.zeros(1, 128, dtype=torch.long, device="cuda")
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                net(tokens)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            net(tokens)

        def replays():
            for _ in range(200):
                graph.replay()
        replays()
        print(f"replay of a graph, GPT of 4 layers: {median(5, replays) / 200 * 1e6:.0f} us")
    host = torch.randn(1 << 28)

    def copy():
        host.to("cuda")
    copy()
    print(f"1 GiB of pageable memory to the device: {host.nbytes / median(3, copy) / 1e9:.1f} GB/s")


main()
