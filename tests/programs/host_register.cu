// Memory of the program's own that it registers: kernels reach it, copies of it are in the order of streams, and it is
// the program's own again, with its content, once that is taken back.
#include "program.h"

#include <sys/mman.h>
#include <unistd.h>

#include <vector>

__global__ void scale(unsigned *data, unsigned n, unsigned factor) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = data[i] * factor + 1;
}

template <typename T> static T *on_device(T *host) {
    T *device = nullptr;
    CHECK(cudaHostGetDevicePointer(reinterpret_cast<void **>(&device), host, 0));
    return device;
}

static void is_refused(cudaError_t error, cudaError_t expected, const char *what) {
    if (error != expected) Program::fail("%s: %s", what, cudaGetErrorName(error));
    cudaGetLastError();
}

// Kernels, copies and fills of registered memory, which holds i at [i] before.
static void work_with(unsigned *host, unsigned n, bool is_mapped) {
    const size_t bytes = n * sizeof(unsigned);
    unsigned *between;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&between, bytes));
    cudaPointerAttributes attributes;
    unsigned *inside = host + n / 2;
    CHECK(cudaPointerGetAttributes(&attributes, inside));
    if (attributes.type != cudaMemoryTypeHost) Program::fail("memory of type %d", attributes.type);
    if (attributes.hostPointer != inside) Program::fail("host pointer %p, not %p", attributes.hostPointer, inside);
    if (is_mapped) {
        unsigned *device = on_device(host);
        if (attributes.devicePointer != device + n / 2) Program::fail("device pointer %p", attributes.devicePointer);
        scale<<<(n + 255) / 256, 256, 0, stream>>>(device, n, 3);
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < n; i++) {
            if (host[i] != i * 3 + 1) Program::fail("[%u] is %u after a kernel", i, host[i]);
            host[i] = i;
        }
    } else if (attributes.devicePointer) {
        Program::fail("device pointer %p of what kernels do not reach", attributes.devicePointer);
    }
    CHECK(cudaMemcpyAsync(between, host, bytes, cudaMemcpyHostToDevice, stream));
    scale<<<(n + 255) / 256, 256, 0, stream>>>(between, n, 5);
    CHECK(cudaMemcpyAsync(host, between, bytes, cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < n; i++) {
        if (host[i] != i * 5 + 1) Program::fail("[%u] is %u after two copies", i, host[i]);
    }
    CHECK(cudaFree(between));
    CHECK(cudaStreamDestroy(stream));
}

// Memory between two guards of the program's own, which share pages with it.
static void heap(unsigned n, unsigned flags) {
    std::vector<unsigned> all(n + 200);
    for (unsigned i = 0; i < n + 200; i++) all[i] = i - 100;
    unsigned *host = all.data() + 100;
    CHECK(cudaHostRegister(host, n * sizeof(unsigned), flags));
    all[0] = 77;
    work_with(host, n, true);
    // None of it again, nor a part of it.
    is_refused(cudaHostRegister(host, n * sizeof(unsigned), flags), cudaErrorHostMemoryAlreadyRegistered, "again");
    is_refused(cudaHostRegister(host + n - 1, 400, flags), cudaErrorHostMemoryAlreadyRegistered, "a part");
    is_refused(cudaHostRegister(host - 50, 204, flags), cudaErrorHostMemoryAlreadyRegistered, "its beginning");
    is_refused(cudaHostUnregister(host + 1), cudaErrorHostMemoryNotRegistered, "from the middle");
    is_refused(cudaFreeHost(host), cudaErrorInvalidValue, "freed");
    CHECK(cudaHostUnregister(host));
    is_refused(cudaHostUnregister(host), cudaErrorHostMemoryNotRegistered, "twice");
    for (unsigned i = 0; i < n + 200; i++) {
        const bool inside = i >= 100 && i < n + 100;
        const unsigned expected = inside ? (i - 100) * 5 + 1 : i == 0 ? 77 : i - 100;
        if (all[i] != expected) Program::fail("[%u] is %u, not %u, when it is not registered any more", i, all[i], expected);
    }
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, host));
    if (attributes.type != cudaMemoryTypeUnregistered) Program::fail("type %d afterwards", attributes.type);
}

static unsigned in_data[5000] = {1};

int main(int argc, char **argv) {
    const Program program("host_register", argc, argv);
    int supported = 0, same = 1;
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrHostRegisterSupported, 0));
    CHECK(cudaDeviceGetAttribute(&same, cudaDevAttrCanUseHostPointerForRegisteredMem, 0));
    if (!supported) Program::fail("the device says that it cannot");

    for (unsigned flags : {cudaHostRegisterDefault, cudaHostRegisterPortable | cudaHostRegisterMapped}) {
        for (unsigned n : {1u, 100u, 5000u, program.large ? 16u << 20 : 300007u}) heap(n, flags);
    }
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    // Many at once, in pages of their own, and in another order back.
    std::vector<unsigned *> many(40);
    for (unsigned i = 0; i < many.size(); i++) {
        many[i] = static_cast<unsigned *>(std::aligned_alloc(page, 20 * page));
        for (unsigned j = 0; j < 5 * page; j++) many[i][j] = i;
        CHECK(cudaHostRegister(many[i], 20 * page, 0));
    }
    for (unsigned *one : many) scale<<<80, 256>>>(on_device(one), 5 * page, 2);
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < many.size(); i++) {
        if (many[i][0] != i * 2 + 1 || many[i][5 * page - 1] != i * 2 + 1) Program::fail("one of many");
        unsigned *back = many[i * 7 % many.size()];
        CHECK(cudaHostUnregister(back));
    }
    for (unsigned *one : many) std::free(one);
    // Two that share a page: of the second only copies may be served.
    std::vector<unsigned> both(10000);
    for (unsigned i = 0; i < 10000; i++) both[i] = i % 5000;
    for (unsigned half : {0u, 1u}) CHECK(cudaHostRegister(both.data() + half * 5000, 5000 * sizeof(unsigned), 0));
    for (unsigned half : {0u, 1u}) {
        unsigned *host = both.data() + half * 5000, *device = nullptr;
        const bool is_mapped = cudaHostGetDevicePointer(reinterpret_cast<void **>(&device), host, 0) == cudaSuccess;
        cudaGetLastError();
        if (half == 0 && !is_mapped) Program::fail("the first is not mapped");
        work_with(host, 5000, is_mapped);
    }
    for (unsigned half : {0u, 1u}) CHECK(cudaHostUnregister(both.data() + half * 5000));
    for (unsigned i = 0; i < 10000; i++) {
        if (both[i] != (i % 5000) * 5 + 1) Program::fail("[%u] of two is %u afterwards", i, both[i]);
    }
    // Static memory, and whole pages.
    for (unsigned i = 0; i < 5000; i++) in_data[i] = i;
    CHECK(cudaHostRegister(in_data, sizeof in_data, 0));
    work_with(in_data, 5000, true);
    CHECK(cudaHostUnregister(in_data));
    if (in_data[4999] != 4999 * 5 + 1) Program::fail("static memory holds %u afterwards", in_data[4999]);
    const int pages = PROT_READ | PROT_WRITE;
    auto *mapped = static_cast<unsigned *>(mmap(nullptr, 8 * page, pages, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (unsigned i = 0; i < page; i++) mapped[i] = i;
    CHECK(cudaHostRegister(mapped, 4 * page, cudaHostRegisterMapped));
    work_with(mapped, page, true);
    // What the program itself took away is not brought back.
    if (munmap(mapped, 8 * page) != 0) Program::fail("munmap");
    auto *other = static_cast<unsigned *>(mmap(mapped, page, pages, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    other[5] = 55;
    CHECK(cudaHostUnregister(mapped));
    if (other[5] != 55 || other[6] != 0) Program::fail("%u, %u where it had been", other[5], other[6]);
    munmap(mapped, page);

    // What cannot be mapped serves copies.
    auto *shared = static_cast<unsigned *>(mmap(nullptr, 4 * page, pages, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (unsigned i = 0; i < page; i++) shared[i] = i;
    if (cudaHostRegister(shared, 4 * page, cudaHostRegisterDefault) == cudaSuccess) {
        unsigned *device = nullptr;
        const bool is_mapped = cudaHostGetDevicePointer(reinterpret_cast<void **>(&device), shared, 0) == cudaSuccess;
        cudaGetLastError();
        work_with(shared, page, is_mapped);
        CHECK(cudaHostUnregister(shared));
    } else {
        Program::fail("shared memory is not registered for copies");
    }
    unsigned on_stack[1000];
    for (unsigned i = 0; i < 1000; i++) on_stack[i] = i;
    CHECK(cudaHostRegister(on_stack, sizeof on_stack, cudaHostRegisterPortable));
    unsigned *device = nullptr;
    const bool is_mapped = cudaHostGetDevicePointer(reinterpret_cast<void **>(&device), on_stack, 0) == cudaSuccess;
    cudaGetLastError();
    work_with(on_stack, 1000, is_mapped);
    CHECK(cudaHostUnregister(on_stack));
    // Not memory, read-only memory, no memory, unknown flags.
    munmap(shared, 4 * page);
    is_refused(cudaHostRegister(shared, 4 * page, 0), cudaErrorInvalidValue, "not memory");
    is_refused(cudaHostRegister(in_data, 0, 0), cudaErrorInvalidValue, "no bytes");
    is_refused(cudaHostRegister(nullptr, 8, 0), cudaErrorInvalidValue, "null");
    is_refused(cudaHostRegister(in_data, 8, 64), cudaErrorInvalidValue, "flags");
    is_refused(cudaHostUnregister(in_data), cudaErrorHostMemoryNotRegistered, "never registered");
    CHECK(cudaDeviceSynchronize());
    return Program::pass("same=%d", same);
}
