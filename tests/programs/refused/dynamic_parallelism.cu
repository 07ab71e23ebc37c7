// nvcc: -rdc=true -lcudadevrt
// A kernel that launches a kernel.
#include "../program.h"

__global__ void child(unsigned *out) { out[threadIdx.x] = 5; }

__global__ void parent(unsigned *out) { child<<<1, 4>>>(out); }

int main(int argc, char **argv) {
    const Program program("dynamic_parallelism", argc, argv);
    unsigned values[4], *device;
    CHECK(cudaMalloc(&device, sizeof values));
    CHECK(cudaMemset(device, 0, sizeof values));
    parent<<<1, 1>>>(device);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values, device, sizeof values, cudaMemcpyDeviceToHost));
    if (values[3] != 5) Program::fail("%u, not 5", values[3]);
    CHECK(cudaFree(device));
    return Program::pass("%u", values[3]);
}
