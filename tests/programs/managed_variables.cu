// Managed variables: the host uses them by their names, kernels too.
#include "program.h"

__device__ __managed__ unsigned counter = 5;
__device__ __managed__ int table[1000];
__managed__ const char *text = nullptr;
// No kernel names it.
__managed__ double unnamed = 2.5;
// Plain ones beside them.
__device__ unsigned plain = 7;
__constant__ unsigned factor = 3;

__global__ void work(unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        table[i] = static_cast<int>(i * factor + plain);
        atomicAdd(&counter, 1);
    }
    if (i == 0 && text && *text == 'b') atomicAdd(&plain, 100);
}

int main(int argc, char **argv) {
    const Program program("managed_variables", argc, argv);
    // Before the first call.
    if (counter != 5 || table[999] != 0 || unnamed != 2.5) Program::fail("%u, %d, %g at first", counter, table[999], unnamed);
    unnamed += 1;
    counter = 10;
    work<<<4, 256>>>(1000);
    CHECK(cudaDeviceSynchronize());
    if (counter != 1010) Program::fail("%u threads", counter - 10);
    for (int i = 0; i < 1000; i++) {
        if (table[i] != i * 3 + 7) Program::fail("[%d] is %d", i, table[i]);
    }
    unsigned other = 4;
    CHECK(cudaMemcpyToSymbol(factor, &other, sizeof other));
    char *letters;
    CHECK(cudaMallocManaged(&letters, 4));
    letters[0] = 'b';
    text = letters;
    work<<<4, 256>>>(1000);
    CHECK(cudaMemcpyFromSymbol(&other, plain, sizeof other));
    if (other != 107) Program::fail("a plain variable is %u", other);
    if (table[999] != 999 * 4 + 7 && table[999] != 999 * 4 + 107) Program::fail("the last is %d", table[999]);
    // By address, as memory.
    unsigned *address, *device, copied = 0;
    CHECK(cudaGetSymbolAddress(reinterpret_cast<void **>(&address), counter));
    if (address != &counter) Program::fail("two addresses, %p and %p", address, &counter);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, &table[7]));
    if (attributes.type != cudaMemoryTypeManaged) Program::fail("memory of type %d", attributes.type);
    CHECK(cudaMalloc(&device, sizeof counter));
    CHECK(cudaMemcpy(device, &counter, sizeof counter, cudaMemcpyDefault));
    CHECK(cudaMemcpy(&copied, device, sizeof copied, cudaMemcpyDeviceToHost));
    if (copied != 2010) Program::fail("%u copied", copied);
    CHECK(cudaMemcpyToSymbol(counter, &other, sizeof other));
    CHECK(cudaMemset(&table[1], 0xff, 8));
    CHECK(cudaDeviceSynchronize());
    if (counter != 107 || table[1] != -1 || table[2] != -1 || table[3] == -1) Program::fail("%u, %d", counter, table[1]);
    if (unnamed != 3.5) Program::fail("what no kernel names is %g", unnamed);
    CHECK(cudaFree(device));
    CHECK(cudaFree(letters));
    return Program::pass("counter=%u", counter);
}
