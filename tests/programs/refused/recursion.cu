// A device function that calls itself: its stack has no bound.
#include "../program.h"

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

__global__ void compute(unsigned *out) { out[threadIdx.x] = ackermann(2, threadIdx.x); }

int main(int argc, char **argv) {
    const Program program("recursion", argc, argv);
    unsigned values[4], *device;
    CHECK(cudaMalloc(&device, sizeof values));
    compute<<<1, 4>>>(device);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values, device, sizeof values, cudaMemcpyDeviceToHost));
    for (unsigned n = 0; n < 4; n++) {
        if (values[n] != 2 * n + 3) Program::fail("A(2, %u) = %u, not %u", n, values[n], 2 * n + 3);
    }
    CHECK(cudaFree(device));
    return Program::pass("A(2, 3) = %u", values[3]);
}
