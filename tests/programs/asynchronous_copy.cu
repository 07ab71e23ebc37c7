// A tile that is copied to shared memory while the thread goes on.
// nvcc: -gencode arch=compute_80,code=[sm_80,compute_80]
#include "program.h"

#include <cuda_pipeline.h>

#include <vector>

constexpr int N = 256;

__global__ void turn(const unsigned *from, unsigned *to) {
    __shared__ unsigned tile[N];
    __pipeline_memcpy_async(&tile[threadIdx.x], &from[threadIdx.x], sizeof(unsigned));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    to[threadIdx.x] = tile[N - 1 - threadIdx.x];
}

int main(int argc, char **argv) {
    const Program program("asynchronous_copy", argc, argv);
    std::vector<unsigned> values(N);
    for (int i = 0; i < N; i++) values[i] = hash(i);
    unsigned *from, *to;
    CHECK(cudaMalloc(&from, N * sizeof(unsigned)));
    CHECK(cudaMalloc(&to, N * sizeof(unsigned)));
    CHECK(cudaMemcpy(from, values.data(), N * sizeof(unsigned), cudaMemcpyHostToDevice));
    turn<<<1, N>>>(from, to);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values.data(), to, N * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) {
        if (values[i] != hash(N - 1 - i)) Program::fail("values[%d] = %u, not %u", i, values[i], hash(N - 1 - i));
    }
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    return Program::pass("%d words", N);
}
