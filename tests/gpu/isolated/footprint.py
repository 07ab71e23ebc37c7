#!/usr/bin/env python3
"""Question 7: how much device memory a context takes, as another process sees it by cuMemGetInfo and by NVML.

usage: footprint.py driver STAGES    STAGES is the program of stages.cpp
       footprint.py torch            PyTorch
       footprint.py --torch          its stages, for this script's own use

Prints rows as the programs beside it do. The observer has a context of its own before anything is counted.
"""
import ctypes
import os
import subprocess
import sys
import time

MIB = 1 << 20


def torch_stages():
    def stage(name, body):
        begun = time.perf_counter()
        result = body()
        held = result if isinstance(result, int) else 0
        print(f"{name}\t{(time.perf_counter() - begun) * 1e3:.1f}\t{held}", flush=True)
        if not sys.stdin.readline():
            sys.exit(0)

    kept = {}

    def reserved():
        torch.cuda.synchronize()
        return torch.cuda.memory_reserved()

    def first():
        global torch
        import torch

    def zeros():
        kept["one"] = torch.zeros(1, device="cuda")
        return reserved()

    def matmul():
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        kept["product"] = a @ a
        return reserved()

    def linear():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            layer = torch.nn.Linear(1024, 1024).cuda()
            layer(torch.randn(64, 1024, device="cuda")).sum().backward()
        return reserved()

    def convolution():
        layer = torch.nn.Conv2d(64, 64, 3, padding=1).cuda().bfloat16()
        layer(torch.randn(8, 64, 56, 56, device="cuda", dtype=torch.bfloat16)).sum().backward()
        return reserved()

    def attention():
        q = torch.randn(4, 8, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
        return reserved()

    def streams():
        kept["streams"] = [torch.cuda.Stream() for _ in range(2)]
        for stream in kept["streams"]:
            with torch.cuda.stream(stream):
                kept["one"] + 1
        return reserved()

    stage("import torch", first)
    stage("torch.zeros(1)", zeros)
    stage("bf16 matmul 8192", matmul)
    stage("the same again", matmul)
    stage("AMP linear, backward", linear)
    stage("convolution, backward (cuDNN)", convolution)
    stage("attention, backward", attention)
    stage("streams (128 are made)", streams)


class Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    ]


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Nvml:
    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        by_index = self.library.nvmlDeviceGetHandleByIndex_v2
        calls = (self.library.nvmlInit_v2, lambda: by_index(0, ctypes.byref(self.device)))
        for code in (call() for call in calls):
            if code:
                raise OSError(f"NVML answers {code}")

    def used(self):
        memory = Memory()
        code = self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory))
        return memory.used if code == 0 else -1

    def processes(self):
        """(answer, {pid: bytes})"""
        list_of = (Process * 64)()
        count = ctypes.c_uint(64)
        code = self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(count), list_of)
        return code, {one.pid: one.used for one in list_of[: count.value if code == 0 else 0]}


class Observer:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        calls = (
            lambda: self.cuda.cuInit(0),
            lambda: self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
            lambda: self.cuda.cuCtxSetCurrent(context),
        )
        for code in (call() for call in calls):
            if code:
                raise OSError(f"the driver answers {code}")
        try:
            self.nvml = Nvml()
        except OSError as error:
            print(f"no NVML: {error}")
            self.nvml = None

    def free(self):
        available, total = ctypes.c_size_t(), ctypes.c_size_t()
        if self.cuda.cuMemGetInfo_v2(ctypes.byref(available), ctypes.byref(total)):
            raise OSError("cuMemGetInfo")
        return available.value

    def settled(self):
        """What is free once it no longer changes."""
        last = self.free()
        for _ in range(100):
            time.sleep(0.05)
            current = self.free()
            if current == last:
                return current
            last = current
        return last


def row(quantity, value, comparison):
    print(f"row 7\t{quantity}\t{value}\t{comparison}", flush=True)


def watch(observer, name, command, environment, chosen, rounds):
    """Runs the command through its stages; rows for the chosen ones, medians over the rounds."""
    found, order = {}, []
    seen = "no NVML"
    for _ in range(rounds):
        before = observer.settled()
        used = observer.nvml.used() if observer.nvml else 0
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        child = subprocess.Popen(command, env={**os.environ, **environment}, **pipes)
        for line in child.stdout:
            parts = line.rstrip("\n").split("\t")
            if len(parts) < 2:
                continue
            stage, ms, held = parts[0], float(parts[1]), int(parts[2]) if len(parts) > 2 else 0
            taken = before - observer.settled()
            by_nvml, own = 0, None
            if observer.nvml:
                by_nvml = observer.nvml.used() - used
                code, processes = observer.nvml.processes()
                own = processes.get(child.pid)
                if stage not in ("cuInit", "import torch"):
                    listed = "listed" if own is not None else "not listed"
                    seen = f"code {code}, {len(processes)} processes, this one {listed}"
                    if own is not None:
                        seen += " without its memory" if own == (1 << 64) - 1 else f" with {own / MIB:.0f} MiB"
            if stage not in found:
                found[stage] = []
                order.append(stage)
            found[stage].append((taken, by_nvml, held, ms))
            if chosen and all(one in found for one in chosen) and stage == chosen[-1]:
                break
            child.stdin.write("\n")
            child.stdin.flush()
        child.stdin.close()
        if child.wait():
            sys.exit(f"{name} ended with {child.returncode}")
    previous = 0
    for stage in order:
        taken, by_nvml, held, ms = (sorted(column)[len(column) // 2] for column in zip(*found[stage]))
        text = (f"+{(taken - previous) / MIB:.1f}", f"NVML {by_nvml / MIB:.1f}; {ms:.0f} ms")
        if held:
            text = (text[0], f"without PyTorch's own {held / MIB:.0f}: {(taken - held) / MIB:.1f}; {ms:.0f} ms")
        print(f"{name}: {stage}: {taken / MIB:.1f} MiB, {text[0]}, {text[1]}")
        if stage in chosen if chosen else stage != "cuInit":
            row(f"{name}: {stage}", f"{taken / MIB:.1f} MiB", f"{text[0]}; {text[1]}")
        previous = taken
    return seen


def main():
    if sys.argv[1] == "--torch":
        return torch_stages()
    observer = Observer()
    if sys.argv[1] == "torch":
        torch = [sys.executable, os.path.abspath(__file__), "--torch"]
        row("NVML, of a process of PyTorch", watch(observer, "PyTorch", torch, {}, None, 1), "")
        expandable = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        watch(observer, "PyTorch, expandable segments", torch, expandable, ("bf16 matmul 8192",), 1)
        return
    stages = [sys.argv[2]]
    seen = watch(observer, "driver", stages, {}, None, 5)
    row("NVML, of a process of stages", seen, f"this script is {os.getpid()}")
    for name, value in (("MAX_CONNECTIONS", "1"), ("MAX_CONNECTIONS", "32"), ("LAUNCH_QUEUES", "4x")):
        variable = {"MAX_CONNECTIONS": "CUDA_DEVICE_MAX_CONNECTIONS", "LAUNCH_QUEUES": "CUDA_SCALE_LAUNCH_QUEUES"}[name]
        watch(observer, f"{name}={value}", stages, {variable: value}, ("128 streams, each used",), 3)


main()
