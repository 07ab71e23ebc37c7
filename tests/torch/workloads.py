"""What people do with PyTorch, each as a function that prints what it computed: the same text natively and through Bulkhead.

python3 tests/torch/workloads.py NAME...      runs those named, or all (`--list` prints the names); one line of results each
"""

import sys

import torch
import torch.nn.functional as F

from running import main

WORKLOADS = {}


def workload(function):
    WORKLOADS[function.__name__] = function
    return function


def told(*values):
    """Numbers as text that is the same where the computation is."""
    out = []
    for value in values:
        if isinstance(value, torch.Tensor):
            value = value.detach().double().cpu()
            out.append(f"{list(value.shape)} {value.sum().item():.6e} {value.abs().max().item():.6e}")
        elif isinstance(value, float):
            out.append(f"{value:.6e}")
        else:
            out.append(str(value))
    return "; ".join(out)


def random(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(*shape, generator=generator).to("cuda", dtype)


@workload
def ones():
    return told(torch.ones(3, device="cuda") + 1)


@workload
def elementwise():
    x = random(1000, 1000)
    return told(x.exp(), x.sin().cumsum(1), torch.where(x > 0, x, -x), x.softmax(1), x.clamp(-1, 1).std())


@workload
def sorting():
    x = random(1 << 18)
    values, order = x.sort()
    return told(values[::1000], order[::1000], x.topk(5).values, x.unique(), (x > 0).nonzero())


@workload
def indexing():
    x, at = random(5000, 64), torch.arange(0, 5000, 7, device="cuda")
    y = torch.zeros_like(x).index_add_(0, at, x[at])
    return told(x[at], y, x.gather(1, (x > 0).long()), torch.nn.functional.embedding(at % 100, x))


@workload
def matmul():
    out = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        x, y = random(512, 512, dtype=dtype), random(512, 512, dtype=dtype, seed=1)
        out += [x @ y, torch.bmm(x.view(4, 128, 512), y.view(4, 512, 128))]
    return told(*out)


@workload
def linear_algebra():
    x = random(64, 64)
    spd = x @ x.T + 64 * torch.eye(64, device="cuda")
    return told(torch.linalg.cholesky(spd), torch.linalg.solve(spd, x), torch.linalg.inv(spd))


@workload
def convolution():
    torch.manual_seed(0)
    x = random(8, 16, 32, 32)
    w = random(32, 16, 3, 3, seed=1)
    half = F.conv2d(x.half(), w.half(), padding=1)
    return told(F.conv2d(x, w, padding=1), half, F.conv_transpose2d(x, random(16, 8, 3, 3, seed=2)),
                F.max_pool2d(x, 2), F.batch_norm(x, None, None, training=True))


@workload
def fourier():
    x = random(16, 1024)
    return told(torch.fft.rfft(x).abs(), torch.fft.fft2(x.view(16, 32, 32)).abs(), torch.fft.irfft(torch.fft.rfft(x)))


@workload
def attention():
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = (random(2, 8, 256, 64, dtype=torch.bfloat16, seed=seed) for seed in range(3))
    out = []
    for backend in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION,
                    SDPBackend.CUDNN_ATTENTION):
        with sdpa_kernel(backend):
            out.append(F.scaled_dot_product_attention(q, k, v, is_causal=True))
    return told(*out)


@workload
def mlp():
    """Training of a small network, eager."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[m for _ in range(4) for m in (torch.nn.Linear(256, 256), torch.nn.ReLU())]).cuda()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    x, y = random(64, 256), random(64, 256, seed=1)
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return told(torch.stack(losses))


@workload
def amp():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                              torch.nn.Linear(16 * 30 * 30, 10)).cuda()
    optimizer, scaler = torch.optim.SGD(net.parameters(), 1e-2), torch.amp.GradScaler("cuda")
    x, y = random(32, 3, 32, 32), torch.arange(32, device="cuda") % 10
    for _ in range(50):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return f"loss below a tenth: {loss.item() < 0.23}; scale {scaler.get_scale()}"


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 4, w // 4).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(torch.nn.Module):
    def __init__(self, width=256, layers=4, vocabulary=512, context=128):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(context, width)
        self.blocks = torch.nn.Sequential(*[Block(width) for _ in range(layers)])
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places.weight[: x.shape[1]])))


@workload
def gpt():
    """A small GPT, trained for 200 steps, eager."""
    torch.manual_seed(0)
    net = Gpt().cuda()
    optimizer = torch.optim.AdamW(net.parameters(), 3e-4)
    text = torch.arange(8 * 129).view(8, 129).mul(7).remainder(512).cuda()
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return f"first {losses[0].item():.3f}, last below 1: {losses[-1].item() < 1}"


@workload
def graphs():
    """Generation with a CUDA graph."""
    torch.manual_seed(0)
    net = Gpt().cuda().eval()
    tokens = torch.zeros(1, 128, dtype=torch.long, device="cuda")
    with torch.no_grad():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                net(tokens)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = net(tokens)
        eager = []
        for at in range(20):
            graph.replay()
            tokens[0, at + 1] = logits[0, at].argmax()
            eager.append((net(tokens) - logits).abs().max().item() if at == 0 else 0.0)
    return f"{tokens[0, :21].tolist()}; as eager: {max(eager) < 1e-4}"


@workload
def streams():
    x = random(1 << 20)
    others = [torch.cuda.Stream() for _ in range(8)]
    out = []
    for number, stream in enumerate(others):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            out.append((x * number).sum())
    events = [stream.record_event() for stream in others]
    for event in events:
        torch.cuda.current_stream().wait_event(event)
    return told(torch.stack(out)) + f"; {len({s.cuda_stream for s in others})} streams"


@workload
def loader():
    data = torch.utils.data.TensorDataset(torch.arange(1000).float().view(250, 4))
    batches = torch.utils.data.DataLoader(data, batch_size=16, num_workers=2, pin_memory=True)
    total = sum(batch.to("cuda", non_blocking=True).sum() for (batch,) in batches)
    return told(total)


@workload
def memory():
    """Allocator: sizes, peaks, an allocation beyond the device, and that it goes on."""
    x = [torch.empty(1 << 26, device="cuda") for _ in range(8)]
    peak = torch.cuda.max_memory_allocated()
    del x
    torch.cuda.empty_cache()
    try:
        torch.empty(1 << 42, device="cuda")
        return "no error"
    except torch.OutOfMemoryError:
        pass
    return f"{peak >= 8 << 28}; " + told(torch.ones(1 << 20, device="cuda").sum())


@workload
def compiled():
    """torch.compile, by Triton."""
    @torch.compile
    def function(x, y):
        return (F.gelu(x) * y + 1).softmax(-1)
    return told(function(random(256, 512), random(256, 512, seed=1)))


@workload
def errors():
    """A device-side assertion is told, as natively, and the process can end."""
    x = torch.zeros(4, device="cuda")
    try:
        x[torch.tensor([7], device="cuda")].cpu()
        return "no error"
    except Exception as error:  # noqa: BLE001
        return type(error).__name__


if __name__ == "__main__":
    sys.exit(main(WORKLOADS, sys.argv[1:]))
