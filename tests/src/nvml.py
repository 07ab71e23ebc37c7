"""What NVML's drop-in tells a program, held against what libcuda tells it: run by tests/tests/nvml.rs under `bulkhead run`.

usage: nvml.py names TABLE | session | alone | forked
"""

import ctypes, json, os, sys

U = ctypes.c_uint
nvml = ctypes.CDLL("libnvidia-ml.so.1")
by = ctypes.byref


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class MemoryV2(ctypes.Structure):
    _fields_ = [("version", U)] + [(name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")]


class Process(ctypes.Structure):
    _fields_ = [("pid", U), ("used", ctypes.c_ulonglong), ("gpu_instance", U), ("compute_instance", U)]


class Pci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16)] + [(name, U) for name in ("domain", "bus", "device", "id", "subsystem")] + [
        ("bus_id", ctypes.c_char * 32)]


class Field(ctypes.Structure):
    _fields_ = [("field", U), ("scope", U), ("time", ctypes.c_longlong), ("latency", ctypes.c_longlong), ("kind", U),
                ("answer", U), ("value", ctypes.c_ulonglong)]


class Fabric(ctypes.Structure):
    _fields_ = [("version", U), ("cluster", ctypes.c_ubyte * 16), ("status", U), ("clique", U), ("state", ctypes.c_ubyte),
                ("health", U), ("summary", ctypes.c_ubyte)]


class FabricOfPython(ctypes.Structure):
    """As nvidia-ml-py has it: what follows the state is its padding."""
    _fields_ = [("version", U), ("cluster", ctypes.c_ubyte * 16), ("status", U), ("clique", U), ("state", U), ("health", U)]


class Uuid(ctypes.Structure):
    _fields_ = [("version", U), ("kind", U), ("value", ctypes.c_char * 41)]


def same(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got!r}, not {wanted!r}")


def ok(what, code):
    same(what, code, 0)


def device():
    handle = ctypes.c_void_p()
    ok("by index", nvml.nvmlDeviceGetHandleByIndex_v2(0, by(handle)))
    return handle


def memory(handle):
    first, second = Memory(), MemoryV2(version=0x02000028)
    ok("memory", nvml.nvmlDeviceGetMemoryInfo(handle, by(first)))
    ok("memory, the second form", nvml.nvmlDeviceGetMemoryInfo_v2(handle, by(second)))
    same("both forms", (second.total, second.free, second.used), (first.total, first.free, first.used))
    same("what is reserved", second.reserved, 0)
    same("used", first.used, first.total - first.free)
    return first.total, first.free


def processes(handle):
    count, room = U(4), (Process * 4)()
    ok("processes", nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, by(count), room))
    return [(process.pid, process.used) for process in room[: count.value]]


def text(call, *arguments, room=128):
    buffer = ctypes.create_string_buffer(b"\xff" * (room + 1), room + 1)
    return call(*arguments, buffer, U(room)), buffer.value.decode(errors="replace"), buffer.raw[room]


def names(table):
    for line in open(table):
        symbol, state, why = line.rstrip("\n").split("\t")
        if symbol.startswith("#"):
            continue
        call = getattr(nvml, symbol)
        if state == "unsupported":
            same(f"{symbol} before nvmlInit", call(), 1)
    ok("init", nvml.nvmlInit_v2())
    for line in open(table):
        symbol, state, why = line.rstrip("\n").split("\t")
        if state == "unsupported":
            # Arguments that would be written to are left alone.
            room = ctypes.create_string_buffer(b"\xaa" * 64, 64)
            same(symbol, getattr(nvml, symbol)(device(), room, room, room), 3)
            same(f"{symbol}: what it wrote", room.raw, b"\xaa" * 64)
    try:
        import pynvml
    except ImportError:
        return
    source = open(pynvml.__file__).read().split('_nvmlGetFunctionPointer("')[1:]
    looked = {part.split('"')[0] for part in source}
    missing = [name for name in looked if not hasattr(nvml, name)]
    same("names that pynvml looks up", missing, [])


def told(handle):
    """What of the device does not change."""
    name = text(nvml.nvmlDeviceGetName, handle)[1]
    uuid = text(nvml.nvmlDeviceGetUUID, handle)[1]
    major, minor, pci = ctypes.c_int(), ctypes.c_int(), Pci()
    ok("capability", nvml.nvmlDeviceGetCudaComputeCapability(handle, by(major), by(minor)))
    ok("place", nvml.nvmlDeviceGetPciInfo_v3(handle, by(pci)))
    return {"name": name, "uuid": uuid, "capability": [major.value, minor.value], "bus_id": pci.legacy.decode()}


def alone():
    ok("init", nvml.nvmlInit_v2())
    handle = device()
    total, free = memory(handle)
    same("libcuda is not loaded", any("libcuda" in line for line in open("/proc/self/maps")), False)
    print(json.dumps(told(handle) | {"total": total, "free": free, "processes": processes(handle)}))


def open_session():
    cuda = ctypes.CDLL("libcuda.so.1")
    ok("cuInit", cuda.cuInit(0))
    context = ctypes.c_void_p()
    ok("a context", cuda.cuCtxCreate_v2(by(context), 0, 0))
    return cuda


def info(cuda):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ok("cuMemGetInfo", cuda.cuMemGetInfo_v2(by(free), by(total)))
    return total.value, free.value


def session():
    ok("init", nvml.nvmlInit_v2())
    handle = device()
    before = memory(handle)
    same("no session, no process", processes(handle), [])
    cuda = open_session()
    same("the limit, without a session and with one", before[0], info(cuda)[0])
    same("memory", memory(handle), info(cuda))
    held = []
    for bytes in (1, 4097, 3 << 20, 100 << 20):
        address = ctypes.c_ulonglong()
        (total, free), used = info(cuda), processes(handle)
        ok("cuMemAlloc", cuda.cuMemAlloc_v2(by(address), ctypes.c_size_t(bytes)))
        held.append(address)
        after = info(cuda)
        same(f"memory after {bytes} bytes", memory(handle), after)
        same("something is taken", free - after[1] >= bytes, True)
        same("by this process", processes(handle), [(os.getpid(), used[0][1] + free - after[1])])
    for address in held:
        ok("cuMemFree", cuda.cuMemFree_v2(address))
    same("memory in the end", memory(handle), info(cuda))
    same_device(cuda, handle)
    mistakes(handle)
    connections(handle)
    print(json.dumps(told(handle) | {"total": info(cuda)[0], "pid": os.getpid()}))
    wait()


def wait():
    """Until whoever reads the output closes the input."""
    sys.stdout.flush()
    sys.stdin.read()


def same_device(cuda, handle):
    device = told(handle)
    buffer = ctypes.create_string_buffer(128)
    ok("cuDeviceGetName", cuda.cuDeviceGetName(buffer, 128, 0))
    same("name", device["name"], buffer.value.decode())
    raw = (ctypes.c_ubyte * 16)()
    ok("cuDeviceGetUuid", cuda.cuDeviceGetUuid(raw, 0))
    hexed = bytes(raw).hex()
    parts = [hexed[:8], hexed[8:12], hexed[12:16], hexed[16:20], hexed[20:]]
    same("uuid", device["uuid"], "GPU-" + "-".join(parts))
    ok("cuDeviceGetPCIBusId", cuda.cuDeviceGetPCIBusId(buffer, 128, 0))
    same("place", device["bus_id"], buffer.value.decode())
    for at, number in enumerate((75, 76)):
        value = ctypes.c_int()
        ok("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(by(value), number, 0))
        same("capability", device["capability"][at], value.value)
    version, cuda_version = ctypes.c_int(), ctypes.c_int()
    ok("versions", nvml.nvmlSystemGetCudaDriverVersion_v2(by(version)) + cuda.cuDriverGetVersion(by(cuda_version)))
    same("version", version.value, cuda_version.value)
    for call, argument in ((nvml.nvmlDeviceGetHandleByUUID, device["uuid"]),
                           (nvml.nvmlDeviceGetHandleByPciBusId_v2, device["bus_id"]),
                           (nvml.nvmlDeviceGetHandleByPciBusId_v2, "0000" + device["bus_id"])):
        found = ctypes.c_void_p()
        ok(argument, call(argument.encode(), by(found)))
        same(argument, found.value, handle.value)
    for kind, value in ((1, device["uuid"].encode()), (2, bytes(raw))):
        found, asked = ctypes.c_void_p(), Uuid(version=0x01000034, kind=kind)
        ctypes.memmove(ctypes.addressof(asked) + 8, value, len(value))
        ok("uuid, versioned", nvml.nvmlDeviceGetHandleByUUIDV(by(asked), by(found)))
        same("uuid, versioned", found.value, handle.value)


def mistakes(handle):
    found, number = ctypes.c_void_p(), U()
    same("no such index", nvml.nvmlDeviceGetHandleByIndex_v2(1, by(found)), 2)
    same("no such UUID", nvml.nvmlDeviceGetHandleByUUID(b"GPU-00000000-0000-0000-0000-000000000001", by(found)), 6)
    same("no such place", nvml.nvmlDeviceGetHandleByPciBusId_v2(b"00000000:fe:1e.0", by(found)), 6)
    same("no place", nvml.nvmlDeviceGetHandleByPciBusId_v2(b"elsewhere", by(found)), 2)
    same("a handle that was made up", nvml.nvmlDeviceGetIndex(ctypes.c_void_p(4096), by(number)), 2)
    same("no handle", nvml.nvmlDeviceGetIndex(None, by(number)), 2)
    same("nothing was found", found.value, None)
    for call, arguments in ((nvml.nvmlDeviceGetHandleByIndex_v2, (0, None)), (nvml.nvmlDeviceGetHandleByUUID, (None, by(found))),
                            (nvml.nvmlDeviceGetMemoryInfo, (handle, None)), (nvml.nvmlDeviceGetMemoryInfo_v2, (handle, None)),
                            (nvml.nvmlDeviceGetName, (handle, None, 64)), (nvml.nvmlDeviceGetCount_v2, (None,)),
                            (nvml.nvmlDeviceGetComputeRunningProcesses_v3, (handle, None, None)),
                            (nvml.nvmlDeviceGetFieldValues, (handle, 1, None)),
                            (nvml.nvmlDeviceGetCudaComputeCapability, (handle, None, None)),
                            (nvml.nvmlDeviceGetGpuFabricInfoV, (handle, None))):
        same(f"null for {call.__name__}", call(*arguments), 2)
    for version in (0, 0x01000028, 0x02000020, 0x03000028):
        room = MemoryV2(version=version, total=7)
        same(f"version {version:#x}", nvml.nvmlDeviceGetMemoryInfo_v2(handle, by(room)), 25)
        same("nothing was written", (room.version, room.total, room.free), (version, 7, 0))
    # Room for the text and its end, one byte less, and none.
    for call in (nvml.nvmlDeviceGetName, nvml.nvmlDeviceGetUUID):
        length = len(text(call, handle)[1])
        same("just enough room", text(call, handle, room=length + 1)[0], 0)
        for room in (length, 1, 0):
            code, _, behind = text(call, handle, room=room)
            same("too little room", (code, behind), (7, 0xFF))
    count, room = U(0), (Process * 2)()
    same("no room for a process", nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, by(count), None), 7)
    same("there is one", count.value, 1)
    count = U(1)
    same("a list that is not there", nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, by(count), None), 2)
    room[1].pid = 77
    ok("room for one", nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, by(count), room))
    same("one was written", (room[0].pid, room[1].pid), (os.getpid(), 77))
    first = (ctypes.c_ubyte * 32)(*[0xFF] * 32)
    ok("the first form", nvml.nvmlDeviceGetComputeRunningProcesses(handle, by(U(1)), first))
    same("the first form has 16 bytes", bytes(first[16:]), b"\xff" * 16)
    for kind in ("Graphics", "MPSCompute"):
        count = U(2)
        ok(kind, getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v3")(handle, by(count), room))
        same(f"{kind} processes", count.value, 0)
    same("another process's name", text(nvml.nvmlSystemGetProcessName, U(1))[0], 6)
    same("own name", text(nvml.nvmlSystemGetProcessName, U(os.getpid()))[1], os.path.realpath("/proc/self/exe"))
    for code, told in ((0, b"Success"), (3, b"Not Supported"), (12345, b"Unknown Error")):
        nvml.nvmlErrorString.restype = ctypes.c_char_p
        same(f"error {code}", nvml.nvmlErrorString(code), told)
    # What the whole card does.
    for call in ("UtilizationRates", "PowerUsage", "TotalEnergyConsumption", "ProcessUtilization"):
        same(call, getattr(nvml, f"nvmlDeviceGet{call}")(handle, by(room), by(room), by(room)), 3)
    ok("shutdown", nvml.nvmlShutdown())
    same("after it", nvml.nvmlDeviceGetCount_v2(by(number)), 1)
    same("a second one", nvml.nvmlShutdown(), 1)
    ok("init", nvml.nvmlInit_v2())
    ok("count", nvml.nvmlDeviceGetCount_v2(by(number)))
    same("count", number.value, 1)


def connections(handle):
    """As NCCL asks: each pair of devices, which is one and itself, each link, the fabric, fields."""
    number = U(9)
    for kind in (0, 1):
        ok("peers", nvml.nvmlDeviceGetP2PStatus(handle, handle, kind, by(number)))
        same("peers", number.value, 0)
    ok("peers by NVLink", nvml.nvmlDeviceGetP2PStatus(handle, handle, 2, by(number)))
    same("peers by NVLink", number.value, 5)
    same("no such kind", nvml.nvmlDeviceGetP2PStatus(handle, handle, 9, by(number)), 2)
    ok("ancestor", nvml.nvmlDeviceGetTopologyCommonAncestor(handle, handle, by(number)))
    same("ancestor", number.value, 0)
    for link in range(18):
        number.value = 9
        ok("link", nvml.nvmlDeviceGetNvLinkState(handle, link, by(number)))
        same("link", number.value, 0)
        same("remote", nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link, by(number)), 3)
    same("no such link", nvml.nvmlDeviceGetNvLinkState(handle, 99, by(number)), 2)
    for version, size in ((0x02000024, 36), (0x03000028, 40)):
        fabric = Fabric(version=version, state=9, summary=9)
        ok("fabric", nvml.nvmlDeviceGetGpuFabricInfoV(handle, by(fabric)))
        same("fabric", (fabric.state, fabric.version), (0, version))
        same("what is behind the second form", fabric.summary, 9 if size == 36 else 0)
    fabric = FabricOfPython(version=0x02000024, state=0xFFFFFFFF)
    ok("fabric", nvml.nvmlDeviceGetGpuFabricInfoV(handle, by(fabric)))
    same("fabric with its padding", fabric.state, 0)
    same("no such form", nvml.nvmlDeviceGetGpuFabricInfoV(handle, by(Fabric(version=0x09000024))), 25)
    fields = (Field * 3)(Field(field=91), Field(field=167), Field(field=1, answer=77))
    ok("fields", nvml.nvmlDeviceGetFieldValues(handle, 2, fields))
    same("fields", [(field.answer, field.value) for field in fields], [(0, 0), (3, 0), (77, 0)])
    for count in (0, -1, 1 << 30):
        same("as many fields", nvml.nvmlDeviceGetFieldValues(handle, count, fields), 2)
    settings = (U * 5)(0x01000014, 9, 9, 9, 9)
    ok("settings", nvml.nvmlSystemGetConfComputeSettings(settings))
    same("settings", list(settings)[1:], [0, 0, 0, 0])
    settings = (U * 5)(0x01000010, 9, 9, 9, 9)
    same("settings of another version", nvml.nvmlSystemGetConfComputeSettings(settings), 25)


def forked():
    """A child of a process with a session has none, and may ask all the same."""
    cuda = open_session()
    ok("init", nvml.nvmlInit_v2())
    handle = device()
    total, free = info(cuda)
    same("the parent's", len(processes(handle)), 1)
    child = os.fork()
    if child == 0:
        same("the child's limit", memory(handle)[0], total)
        same("the child has no session", processes(handle), [])
        os._exit(0)
    same("the child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


globals()[sys.argv[1]](*sys.argv[2:])
