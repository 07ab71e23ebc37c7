"""PyTorch's own samples for each of its operators, forward and backward: what each computes, as a digest that can be compared.

python3 tests/torch/ops.py [--part I/N] [--samples K] [--seconds S]

The samples are those that PyTorch tests itself with (`torch.testing._internal.common_methods_invocations.op_db`, part of the wheel). One line
for each operator and type: `NAME TYPE DIGEST`. The digest is `varies` where two runs in this process differ, so that what
natively does not repeat itself is not compared, and the error's type where a sample ends with one. Ends with 0; what did not
fit into S seconds is told as `NAME TYPE left`.
"""

import argparse
import hashlib
import sys
import time
import types
import unittest


def stand_in():
    """PyTorch's helpers for tests import `expecttest`, which no wheel brings, and nothing here needs."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        module = types.ModuleType("expecttest")
        module.TestCase = unittest.TestCase
        module.assert_expected_inline = None
        sys.modules["expecttest"] = module


# What is in new memory is nobody's promise.
UNWRITTEN = ("empty", "resize")
# These look at the clock, or draw from a generator that the operator makes itself.
SKIPPED = {"torch.ops.profiler._record_function_enter", "svd_lowrank", "pca_lowrank", "to_sparse"}


def digest(value, into):
    import torch
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            value = value.to_dense()
        value = value.detach().resolve_conj().resolve_neg().contiguous().cpu()
        into.update(str((value.dtype, tuple(value.shape))).encode())
        into.update(value.view(torch.uint8).numpy().tobytes() if value.numel() and value.dim() else str(value.tolist()).encode())
    elif isinstance(value, (list, tuple)):
        for one in value:
            digest(one, into)
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            digest(value[key], into)
    else:
        into.update(repr(value).encode())


def differentiable(value):
    import torch
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, (list, tuple)):
        return [leaf for one in value for leaf in differentiable(one)]
    return []


def once(operator, kind, samples, backward):
    import torch
    into = hashlib.sha256()
    torch.manual_seed(7)
    for at, sample in enumerate(operator.sample_inputs("cuda", kind, requires_grad=backward)):
        if at == samples:
            break
        try:
            torch.manual_seed(at)
            out = operator(sample.input, *sample.args, **sample.kwargs)
            digest(out, into)
            leaves = differentiable([sample.input, *sample.args])
            results = [one for one in differentiable(out) if one.grad_fn is not None]
            if backward and leaves and results:
                grads = torch.autograd.grad(results, leaves, [torch.ones_like(one) for one in results], allow_unused=True)
                digest([one for one in grads if one is not None], into)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # noqa: BLE001
            if any(word in str(error) for word in ("CUDA error", "CUDA driver", "CUBLAS_", "CUDNN_", "CUSOLVER_", "CUFFT_")):
                return f"{type(error).__name__}: {str(error).splitlines()[0]}"
            into.update(type(error).__name__.encode())
    torch.cuda.synchronize()
    return into.hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=200)
    arguments = parser.parse_args()
    part, parts = (int(number) for number in arguments.part.split("/"))
    stand_in()
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    torch.use_deterministic_algorithms(False)
    begun = time.monotonic()
    for operator in op_db[part::parts]:
        name = operator.name + ("." + operator.variant_test_name if operator.variant_test_name else "")
        if operator.name in SKIPPED or any(word in operator.name for word in UNWRITTEN):
            continue
        allowed = operator.supported_dtypes("cuda")
        for kind in (torch.float32, torch.bfloat16, torch.int64, torch.complex64):
            if kind not in allowed:
                continue
            told = "left"
            if time.monotonic() - begun < arguments.seconds:
                backward = kind is torch.float32 and operator.supports_autograd
                try:
                    told = once(operator, kind, arguments.samples, backward)
                    if told != once(operator, kind, arguments.samples, backward):
                        told = "varies"
                except Exception as error:  # noqa: BLE001
                    told = f"{type(error).__name__}"
            print(name, str(kind).removeprefix("torch."), told, flush=True)
    print(f"{time.monotonic() - begun:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
