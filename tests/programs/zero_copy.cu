// Kernels that load and store pinned host memory where it lies, and a host that sees it, without a copy.
#include "program.h"

#include <vector>

__global__ void scale(const unsigned *from, unsigned *to, unsigned n, unsigned factor) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i] * factor + 1;
}

__global__ void count(unsigned *counter, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(counter, 1);
}

// The address by which kernels know pinned memory.
template <typename T> static T *on_device(T *host) {
    T *device = nullptr;
    CHECK(cudaHostGetDevicePointer(reinterpret_cast<void **>(&device), host, 0));
    return device;
}

template <typename T> static void is_host_memory(const T *address, const T *host, const T *device) {
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, address));
    if (attributes.type != cudaMemoryTypeHost) Program::fail("memory of type %d", attributes.type);
    if (attributes.hostPointer != host) Program::fail("host pointer %p, not %p", attributes.hostPointer, host);
    if (attributes.devicePointer != device) {
        Program::fail("device pointer %p, not %p", attributes.devicePointer, device);
    }
}

int main(int argc, char **argv) {
    const Program program("zero_copy", argc, argv);
    int can_map = 0;
    CHECK(cudaSetDeviceFlags(cudaDeviceMapHost));
    CHECK(cudaDeviceGetAttribute(&can_map, cudaDevAttrCanMapHostMemory, 0));
    if (!can_map) Program::fail("the device says that it reaches no host memory");
    const unsigned n = program.large ? 16u << 20 : 300007u;
    const size_t bytes = n * sizeof(unsigned);
    const dim3 block(256), grid((n + 255) / 256);

    // One after the other with each flag, in place.
    const unsigned flags[] = {cudaHostAllocDefault, cudaHostAllocMapped, cudaHostAllocMapped | cudaHostAllocPortable,
                              cudaHostAllocMapped | cudaHostAllocWriteCombined};
    for (unsigned flag : flags) {
        unsigned *host, told = 0;
        CHECK(cudaHostAlloc(&host, bytes, flag));
        CHECK(cudaHostGetFlags(&told, host));
        if (!(told & cudaHostAllocMapped)) Program::fail("flags %#x say that it is not mapped", told);
        unsigned *device = on_device(host);
        is_host_memory(host, host, device);
        for (unsigned i = 0; i < n; i++) host[i] = hash(i);
        scale<<<grid, block>>>(device, device, n, 3);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        for (unsigned i = 0; i < n; i++) {
            const unsigned expected = static_cast<unsigned>(hash(i)) * 3 + 1;
            if (host[i] != expected) Program::fail("flags %#x: [%u] is %u, not %u", flag, i, host[i], expected);
        }
        CHECK(cudaFreeHost(host));
    }

    // Many small ones, each of them a counter of its own, and results that go on in device memory.
    std::vector<unsigned *> counters(64);
    for (unsigned *&counter : counters) {
        CHECK(cudaMallocHost(&counter, sizeof(unsigned)));
        *counter = 5;
    }
    for (unsigned i = 0; i < counters.size(); i++) count<<<4, 128>>>(on_device(counters[i]), i * 7);
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < counters.size(); i++) {
        if (*counters[i] != 5 + i * 7) Program::fail("counter %u is %u, not %u", i, *counters[i], 5 + i * 7);
    }
    for (unsigned *counter : counters) CHECK(cudaFreeHost(counter));

    unsigned *from, *to, *between;
    CHECK(cudaMallocHost(&from, bytes));
    CHECK(cudaMallocHost(&to, bytes));
    CHECK(cudaMalloc(&between, bytes));
    for (unsigned i = 0; i < n; i++) from[i] = i;
    scale<<<grid, block>>>(on_device(from), between, n, 5);
    scale<<<grid, block>>>(between, on_device(to), n, 7);
    CHECK(cudaStreamSynchronize(0));
    for (unsigned i = 0; i < n; i++) {
        if (to[i] != (i * 5 + 1) * 7 + 1) Program::fail("[%u] is %u after two kernels", i, to[i]);
    }
    // Copies and fills of the same memory.
    CHECK(cudaMemcpyAsync(between, to, bytes, cudaMemcpyDefault, 0));
    CHECK(cudaMemset(from, 0x5a, bytes));
    CHECK(cudaMemcpy(to, between, bytes / 2, cudaMemcpyDeviceToHost));
    CHECK(cudaDeviceSynchronize());
    if (from[0] != 0x5a5a5a5a || from[n - 1] != 0x5a5a5a5a) Program::fail("%#x after a fill", from[n - 1]);
    if (to[n / 2 - 1] != ((n / 2 - 1) * 5 + 1) * 7 + 1) Program::fail("a copy to it");

    // What is not pinned has no address there.
    unsigned pageable = 0, *device = nullptr;
    if (cudaHostGetDevicePointer(reinterpret_cast<void **>(&device), &pageable, 0) == cudaSuccess) {
        Program::fail("pageable memory has a device pointer");
    }
    cudaGetLastError();
    CHECK(cudaFreeHost(from));
    CHECK(cudaFreeHost(to));
    CHECK(cudaFree(between));
    return Program::pass("n=%u", n);
}
