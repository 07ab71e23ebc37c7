// What the driver takes to give a gibibyte back, and whether host memory can lie in a range that was reserved.
//
//     nvcc -O1 -o pages tests/gpu/pages.cu -lcuda && ./pages

#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sys/mman.h>
#include <unistd.h>

constexpr size_t MIB = size_t{1} << 20, GIB = size_t{1} << 30;
constexpr size_t SINK = 64 * MIB, PAGE = 2 * MIB;

static CUstream stream;
static CUmemAllocationProp device = {}, host = {};
static CUmemAccessDesc both[2] = {};

static double now_ms() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static const char *name(CUresult result) {
    const char *text = "?";
    cuGetErrorName(result, &text);
    return text;
}

static void must(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS) return;
    printf("%s: %s\n", what, name(result));
    exit(1);
}
#define MUST(call) must(call, #call)

template <typename Call> static double took(Call call) {
    const double start = now_ms();
    call();
    return now_ms() - start;
}

__global__ void store(volatile unsigned *at, unsigned value) { *at = value; }

static void store_at(CUdeviceptr at, unsigned value) {
    store<<<1, 1, 0, (cudaStream_t)stream>>>((volatile unsigned *)at, value);
    MUST(cuStreamSynchronize(stream));
}

// Every step of giving memory back, with and without a descriptor for it.
static void reclaim(CUdeviceptr at, bool exported) {
    CUmemGenericAllocationHandle memory, sink;
    int descriptor = -1;
    MUST(cuMemCreate(&memory, GIB, &device, 0));
    MUST(cuMemCreate(&sink, SINK, &device, 0));
    MUST(cuMemMap(at, GIB, 0, memory, 0));
    MUST(cuMemSetAccess(at, GIB, both, 1));
    if (exported)
        MUST(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    MUST(cuMemsetD32(at, 1, GIB / 4));
    const double scrub = took([&] {
        MUST(cuMemsetD32Async(at, 0, GIB / 4, stream));
        MUST(cuStreamSynchronize(stream));
    });
    const double unmap = took([&] { MUST(cuMemUnmap(at, GIB)); });
    const double release = took([&] { MUST(cuMemRelease(memory)); });
    const double close_it = took([&] {
        if (exported) close(descriptor);
    });
    const double sinks = took([&] {
        for (size_t offset = 0; offset < GIB; offset += SINK) MUST(cuMemMap(at + offset, SINK, 0, sink, 0));
        MUST(cuMemSetAccess(at, GIB, both, 1));
    });
    MUST(cuMemUnmap(at, GIB));
    MUST(cuMemRelease(sink));
    printf("%s: scrub %.3f  unmap %.3f  release %.3f  close %.3f  sinks %.3f ms\n", exported ? "exported" : "own     ",
           scrub, unmap, release, close_it, sinks);
}

// A file's pages in the middle of a reservation.
static void shared_file(CUdeviceptr at) {
    const int file = memfd_create("pages", 0);
    if (ftruncate(file, PAGE) != 0) exit(1);
    unsigned *words = (unsigned *)mmap((void *)at, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    printf("file: mapped at the reserved address: %s\n", words == (unsigned *)at ? "yes" : "no");
    CUresult result = CUDA_SUCCESS;
    const double registered = took([&] { result = cuMemHostRegister(words, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP); });
    printf("file: register %s, %.3f ms\n", name(result), registered);
    CUdeviceptr seen = 0;
    MUST(cuMemHostGetDevicePointer(&seen, words, 0));
    store_at(seen, 0xabcd);
    printf("file: the device address is %s; a kernel's store is %s\n", seen == at ? "the same" : "another",
           words[0] == 0xabcd ? "seen" : "not seen");
    CUmemGenericAllocationHandle memory;
    MUST(cuMemCreate(&memory, PAGE, &device, 0));
    printf("file: map device memory over it: %s\n", name(cuMemMap(at, PAGE, 0, memory, 0)));
    printf("file: unregister %.3f ms\n", took([&] { MUST(cuMemHostUnregister(words)); }));
    mmap((void *)at, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    printf("file: map device memory after it: %s\n", name(cuMemMap(at, PAGE, 0, memory, 0)));
}

// Host memory of the driver's own.
static void host_memory(CUdeviceptr at) {
    CUmemGenericAllocationHandle memory;
    int descriptor = -1;
    MUST(cuMemCreate(&memory, SINK, &host, 0));
    MUST(cuMemMap(at, SINK, 0, memory, 0));
    MUST(cuMemSetAccess(at, SINK, both, 2));
    store_at(at, 0xabcd);
    printf("host memory: a kernel's store is %s\n", *(volatile unsigned *)at == 0xabcd ? "seen" : "not seen");
    MUST(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    const void *again = mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    printf("host memory: mapping its descriptor: %s\n", again == MAP_FAILED ? "refused" : "done");
}

int main() {
    MUST(cuInit(0));
    CUcontext context;
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (CUmemAllocationProp *properties : {&device, &host}) {
        properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    device.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    host.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    both[0] = {device.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    both[1] = {host.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr base;
    MUST(cuMemAddressReserve(&base, 4 * GIB, 0, 0x300000000000, 0));
    for (int round = 0; round < 5; round++) reclaim(base, false);
    for (int round = 0; round < 5; round++) reclaim(base, true);
    shared_file(base + 2 * GIB);
    host_memory(base + 3 * GIB);
    return 0;
}
