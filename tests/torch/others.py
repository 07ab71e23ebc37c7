"""What people do with CuPy, JAX, numba and Triton, and with more of PyTorch, each as a function that prints what it computed.

python3 tests/torch/others.py NAME...      runs those named, or all (`--list` prints the names); one line of results each

Each imports what it needs, so that every one runs in a process of its own, where a library that is not there is told as such.
"""

import os
import sys

from running import main

WORKLOADS = {}


def workload(function):
    WORKLOADS[function.__name__] = function
    return function


def numbers(*values):
    """Numbers as text that is the same where the computation is."""
    return "; ".join(f"{float(value):.5e}" if not isinstance(value, str) else value for value in values)


@workload
def cupy_arrays():
    import cupy
    x = cupy.arange(1 << 20, dtype=cupy.float32).reshape(1024, 1024) / 1000
    y = cupy.sort(cupy.sin(x), axis=1)
    return numbers(y[:, ::100].sum(), cupy.unique(cupy.arange(1000) % 37).sum(), x.cumsum()[12345], (x > 5).sum())


@workload
def cupy_linear_algebra():
    import cupy
    a = cupy.cos(cupy.arange(256 * 256, dtype=cupy.float64)).reshape(256, 256) + 16 * cupy.eye(256)
    b = cupy.arange(256, dtype=cupy.float64)
    return numbers((a @ a).sum(), cupy.linalg.solve(a, b).sum(), abs(cupy.fft.fft(b)).sum(), cupy.linalg.norm(a))


@workload
def cupy_own_kernels():
    import cupy
    add = cupy.RawKernel(r"""
        extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] += a * x[i];
        }""", "saxpy")
    x, y = cupy.arange(10000, dtype=cupy.float32), cupy.ones(10000, dtype=cupy.float32)
    add((40,), (256,), (cupy.float32(2), x, y, 10000))
    square = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * x", "square")
    total = cupy.ReductionKernel("float32 x", "float64 y", "x", "a + b", "y = a", "0", "total")
    return numbers(y.sum(), square(x)[::1000].sum(), total(x))


@workload
def cupy_streams_and_memory():
    import cupy
    pool = cupy.get_default_memory_pool()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    parts = []
    for number, stream in enumerate(streams):
        with stream:
            parts.append((cupy.arange(1 << 16, dtype=cupy.float64) * number).sum())
    for stream in streams:
        stream.synchronize()
    sums = [float(part) for part in parts]
    used = pool.used_bytes() > 0
    with cupy.cuda.Stream() as stream:
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        cupy.arange(1000).sum()
        end.record(stream)
        end.synchronize()
    return numbers(*sums, str(used), str(cupy.cuda.get_elapsed_time(start, end) > 0))


@workload
def jax_functions():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp
    x = jnp.linspace(0, 1, 512 * 512).reshape(512, 512)
    step = jax.jit(lambda x: jnp.tanh(x @ x.T / 512) + x)
    gradient = jax.grad(lambda x: step(x).sum())(x)
    scanned = jax.lax.scan(lambda carry, row: (carry * 0.5 + row, carry.sum()), jnp.zeros(512), x)[1]
    values = jax.vmap(lambda row: jnp.sort(jnp.sin(row * 7)))(x)
    return numbers(step(x).sum(), gradient.sum(), scanned.sum(), values[:, ::50].sum(), str(jax.default_backend()))


@workload
def jax_training():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    weights = [jax.random.normal(key, (128, 128)) / 11 for key in keys[:3]]
    x = jax.random.normal(keys[3], (64, 128))

    def loss(weights):
        y = x
        for weight in weights:
            y = jax.nn.relu(y @ weight)
        return ((y - 1) ** 2).mean()

    @jax.jit
    def step(weights):
        value, gradients = jax.value_and_grad(loss)(weights)
        return value, [weight - 0.05 * gradient for weight, gradient in zip(weights, gradients)]
    losses = []
    for _ in range(50):
        value, weights = step(weights)
        losses.append(float(value))
    # Which of its kernels is fastest JAX finds out at each start: the last digits differ natively too.
    return " ".join(f"{loss:.3f}" for loss in (losses[0], losses[10], losses[49]))


@workload
def jax_prealloc():
    """As it comes: JAX takes three quarters of the memory at once."""
    import jax.numpy as jnp
    return numbers(jnp.arange(1000.0).sum())


@workload
def numba_kernels():
    import numpy
    if not hasattr(numpy, "row_stack"):
        # Where numba is older than numpy.
        numpy.row_stack = numpy.vstack
    from numba import cuda

    @cuda.jit
    def smooth(x, y):
        i = cuda.grid(1)
        if 0 < i < x.size - 1:
            y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3

    @cuda.jit
    def total(x, out):
        shared = cuda.shared.array(256, dtype=numpy.float64)
        i, thread = cuda.grid(1), cuda.threadIdx.x
        shared[thread] = x[i] if i < x.size else 0.0
        cuda.syncthreads()
        if thread == 0:
            part = 0.0
            for k in range(256):
                part += shared[k]
            cuda.atomic.add(out, 0, part)
    x = numpy.sin(numpy.arange(100000) / 100)
    on_device, y, out = cuda.to_device(x), cuda.device_array_like(x), cuda.to_device(numpy.zeros(1))
    smooth[391, 256](on_device, y)
    total[391, 256](on_device, out)
    return numbers(y.copy_to_host()[1:-1].sum(), out.copy_to_host()[0])


@workload
def triton_kernels():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def softmax(x, y, columns, BLOCK: tl.constexpr):
        row, at = tl.program_id(0), tl.arange(0, BLOCK)
        values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
        values = tl.exp(values - tl.max(values, 0))
        tl.store(y + row * columns + at, values / tl.sum(values, 0), mask=at < columns)

    @triton.jit
    def matmul(a, b, c, N: tl.constexpr, B: tl.constexpr):
        rows, columns = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
        inner = tl.arange(0, B)
        total = tl.zeros((B, B), dtype=tl.float32)
        for k in range(0, N, B):
            left = tl.load(a + rows[:, None] * N + (k + inner)[None, :])
            total += tl.dot(left, tl.load(b + (k + inner)[:, None] * N + columns[None, :]))
        tl.store(c + rows[:, None] * N + columns[None, :], total)
    x = torch.sin(torch.arange(300 * 1000, device="cuda").float()).view(300, 1000)
    y = torch.empty_like(x)
    softmax[(300,)](x, y, 1000, BLOCK=1024)
    a = torch.cos(torch.arange(512 * 512, device="cuda").float()).view(512, 512).half()
    c = torch.empty(512, 512, device="cuda")
    matmul[(8, 8)](a, a, c, N=512, B=64)
    return numbers(y[:, ::100].sum(), (c - (a @ a).float()).abs().max() < 0.1, c.abs().sum())


@workload
def torch_expandable_segments():
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    import torch
    parts = [torch.full((1 << 20,), float(k), device="cuda") for k in range(100)]
    total = torch.stack([part.sum() for part in parts]).sum()
    del parts
    torch.cuda.empty_cache()
    return numbers(total, torch.ones(1 << 28, device="cuda").sum())


@workload
def torch_reduce_overhead():
    """torch.compile with graphs of its own."""
    import torch
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).cuda()
    run = torch.compile(net, mode="reduce-overhead")
    x = torch.sin(torch.arange(64 * 64, device="cuda").float()).view(64, 64)
    with torch.no_grad():
        for _ in range(5):
            y = run(x).clone()
        return numbers((y - net(x)).abs().max() < 1e-3, y.sum())


class Residual:
    """A residual network in miniature, since torchvision may not be there."""

    @staticmethod
    def make(torch):
        nn = torch.nn

        class Block(nn.Module):
            def __init__(self, planes):
                super().__init__()
                layers = [nn.Conv2d(planes, planes, 3, padding=1, bias=False), nn.BatchNorm2d(planes), nn.ReLU()]
                layers += [nn.Conv2d(planes, planes, 3, padding=1, bias=False), nn.BatchNorm2d(planes)]
                self.layers = nn.Sequential(*layers)

            def forward(self, x):
                return torch.relu(self.layers(x) + x)
        layers = [nn.Conv2d(3, 32, 3, padding=1), Block(32), nn.MaxPool2d(2), nn.Conv2d(32, 64, 1), Block(64)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


@workload
def torch_residual_network():
    """200 steps of training, whose losses are compared."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    net = Residual.make(torch).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(256, 3, 32, 32, generator=generator).cuda()
    labels = torch.randint(0, 10, (256,), generator=generator).cuda()
    losses = []
    for step in range(200):
        part = slice(step % 4 * 64, step % 4 * 64 + 64)
        loss = torch.nn.functional.cross_entropy(net(images[part]), labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return numbers(*losses[::40], losses[-1])


@workload
def torch_profiler():
    import torch
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        y = torch.ones(100, 100, device="cuda") @ torch.ones(100, 100, device="cuda")
    return numbers(y.sum(), str("aten::mm" in {event.key for event in profile.key_averages()}))


@workload
def torch_memory_told():
    """What the program is told of the device's memory fits together."""
    import torch
    before, total = torch.cuda.mem_get_info()
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    after, _ = torch.cuda.mem_get_info()
    return numbers(str(before - after >= x.nbytes), str(after < before <= total), str(torch.cuda.device_count() == 1))


@workload
def torch_host_functions_and_threads():
    """Work of several threads, each with a stream of its own, and a callback."""
    import threading
    import torch
    sums = [0.0] * 4

    def work(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.arange(1000, device="cuda").float() * number
            for _ in range(50):
                x = x.sin() + x
            sums[number] = x.sum().item()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return numbers(*sums)


@workload
def torch_registered_memory():
    """Ordinary memory that is registered, copied from and let go."""
    import torch
    x = torch.arange(1 << 22, dtype=torch.float32)
    cudart = torch.cuda.cudart()
    torch.cuda.init()
    registered = int(cudart.cudaHostRegister(x.data_ptr(), x.numel() * 4, 0))
    y = x.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    total = y.double().sum()
    x += 1
    y.copy_(x, non_blocking=True)
    torch.cuda.synchronize()
    released = int(cudart.cudaHostUnregister(x.data_ptr()))
    return numbers(str(registered), total, y.double().sum(), str(released))


@workload
def torch_forked():
    """A process that forks before it uses the device, whose child uses it."""
    import torch
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, numbers(torch.ones(10, device="cuda").sum()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(reader, 100).decode() + "; " + numbers(torch.ones(5, device="cuda").sum())


@workload
def cupy_prints():
    """What a kernel prints, between what the host does."""
    import cupy
    kernel = cupy.RawKernel(r'''
        extern "C" __global__ void says(int n) { if (threadIdx.x < 2) printf("thread %d says %d\\n", threadIdx.x, n); }
    ''', "says")
    for n in range(3):
        kernel((1,), (32,), (n,))
        cupy.cuda.runtime.deviceSynchronize()
    return "said"


@workload
def torch_assertion():
    """An index out of range: NVIDIA's words on the assertion, and PyTorch's error."""
    import subprocess
    program = """
import torch
try:
    torch.zeros(3, device="cuda")[torch.tensor([5], device="cuda")]
    torch.cuda.synchronize()
except Exception as error:
    print(str(error).splitlines()[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    words = [line for line in done.stderr.splitlines() if "Assertion" in line]
    return "; ".join(words + done.stdout.splitlines())


@workload
def torch_shared_tensors():
    """Tensors of the device that two processes share (`tests/torch/shared.py`)."""
    import subprocess
    import torch  # noqa: F401
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shared.py")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)
    sys.stderr.write(done.stderr)
    return "; ".join(done.stdout.splitlines())


@workload
def torch_threads_end():
    """Backward passes in threads that end: what they kept for the device goes with them."""
    import threading
    import torch
    sums = []

    def work(number):
        x = torch.arange(256, device="cuda", dtype=torch.float32).reshape(16, 16).requires_grad_()
        ((x @ x) * number).sum().backward()
        sums.append(x.grad.sum().item())
    for number in range(4):
        thread = threading.Thread(target=work, args=(number,))
        thread.start()
        thread.join()
    return numbers(*sums)


if __name__ == "__main__":
    sys.exit(main(WORKLOADS, sys.argv[1:]))
