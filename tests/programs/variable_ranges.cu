// What the driver tells of an address inside of a variable at module scope: its range is the variable's own.
#include "driver.h"

__device__ char name[24] = "a variable";
__device__ int values[100];
__managed__ double both[3];

__global__ void fill(const char **to) {
    values[threadIdx.x] = static_cast<int>(threadIdx.x);
    *to = name;
}

static void range(const char *what, CUdeviceptr address, size_t offset, size_t bytes) {
    DRIVER(cuMemGetAddressRange);
    DRIVER(cuPointerGetAttribute);
    CUdeviceptr start = 0, first = 0;
    size_t length = 0, size = 0;
    if (cuMemGetAddressRange_(&start, &length, address + offset) != CUDA_SUCCESS) Program::fail("%s: no range", what);
    if (start != address || length != bytes) {
        Program::fail("%s: %zu bytes from %lld, not %zu", what, length, static_cast<long long>(start - address), bytes);
    }
    const bool told =
        cuPointerGetAttribute_(&first, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + offset) == CUDA_SUCCESS &&
        cuPointerGetAttribute_(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + offset) == CUDA_SUCCESS;
    if (!told || first != address || size != bytes) Program::fail("%s: the attributes tell another range", what);
}

int main(int argc, char **argv) {
    const Program program("variable_ranges", argc, argv);
    const char **kept, *found;
    CHECK(cudaMalloc(&kept, sizeof *kept));
    fill<<<1, 100>>>(kept);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(&found, kept, sizeof found, cudaMemcpyDeviceToHost));
    void *address;
    CHECK(cudaGetSymbolAddress(&address, values));
    range("values", reinterpret_cast<CUdeviceptr>(address), 40, sizeof values);
    CHECK(cudaGetSymbolAddress(&address, both));
    range("both", reinterpret_cast<CUdeviceptr>(address), 23, sizeof both);
    range("name", reinterpret_cast<CUdeviceptr>(found), 0, sizeof name);
    range("an allocation", reinterpret_cast<CUdeviceptr>(kept), 7, sizeof *kept);
    CHECK(cudaFree(kept));
    return Program::pass("each its own");
}
