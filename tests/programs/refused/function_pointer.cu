// A function chosen by the data: the call is indirect, and where it goes is nobody's to check.
#include "../program.h"

__device__ __noinline__ unsigned twice(unsigned x) { return 2 * x; }
__device__ __noinline__ unsigned square(unsigned x) { return x * x; }

__global__ void apply(unsigned *values) {
    unsigned (*const function)(unsigned) = values[threadIdx.x] % 3 == 0 ? twice : square;
    values[threadIdx.x] = function(values[threadIdx.x]);
}

int main(int argc, char **argv) {
    const Program program("function_pointer", argc, argv);
    unsigned values[32], *device;
    for (unsigned i = 0; i < 32; i++) values[i] = i;
    CHECK(cudaMalloc(&device, sizeof values));
    CHECK(cudaMemcpy(device, values, sizeof values, cudaMemcpyHostToDevice));
    apply<<<1, 32>>>(device);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values, device, sizeof values, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 32; i++) {
        const unsigned expected = i % 3 == 0 ? 2 * i : i * i;
        if (values[i] != expected) Program::fail("values[%u] = %u, not %u", i, values[i], expected);
    }
    CHECK(cudaFree(device));
    return Program::pass("values[31] = %u", values[31]);
}
