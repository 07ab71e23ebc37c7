// A variable at module scope that the host writes and reads by its name.
#include "program.h"

__device__ unsigned total;

__global__ void count(unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&total, i);
}

int main(int argc, char **argv) {
    const Program program("device_variable", argc, argv);
    const unsigned n = 1000;
    unsigned sum = 0;
    CHECK(cudaMemcpyToSymbol(total, &sum, sizeof sum));
    count<<<(n + 127) / 128, 128>>>(n);
    CHECK_KERNEL();
    CHECK(cudaMemcpyFromSymbol(&sum, total, sizeof sum));
    if (sum != n * (n - 1) / 2) Program::fail("%u, not %u", sum, n * (n - 1) / 2);
    return Program::pass("sum %u", sum);
}
