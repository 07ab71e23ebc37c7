// A pointer that is into shared or global memory depending on the data: its accesses are generic.
#include "program.h"

__global__ void pick(unsigned *values, const unsigned *choice) {
    __shared__ unsigned own[32];
    own[threadIdx.x] = 1000 + threadIdx.x;
    __syncthreads();
    const unsigned *from = choice[threadIdx.x] ? own : values;
    const unsigned got = from[31 - threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = got;
}

int main(int argc, char **argv) {
    const Program program("generic_address", argc, argv);
    unsigned values[32], choice[32], *device_values, *device_choice;
    for (unsigned i = 0; i < 32; i++) {
        values[i] = i;
        choice[i] = i % 3 == 0;
    }
    CHECK(cudaMalloc(&device_values, sizeof values));
    CHECK(cudaMalloc(&device_choice, sizeof choice));
    CHECK(cudaMemcpy(device_values, values, sizeof values, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_choice, choice, sizeof choice, cudaMemcpyHostToDevice));
    pick<<<1, 32>>>(device_values, device_choice);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values, device_values, sizeof values, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 32; i++) {
        const unsigned expected = (choice[i] ? 1000 : 0) + 31 - i;
        if (values[i] != expected) Program::fail("values[%u] = %u, not %u", i, values[i], expected);
    }
    CHECK(cudaFree(device_values));
    CHECK(cudaFree(device_choice));
    return Program::pass("32 picks");
}
