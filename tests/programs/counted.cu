// Kernels of which everything that a profiler counts can be found with pencil and paper.
// nvcc: -lineinfo
#include "program.h"

constexpr int BLOCKS = 10, THREADS = 64;

__global__ void strided(unsigned *words) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    words[i * 8] = i; // a sector each
}

__global__ void conflicts(unsigned *words) {
    __shared__ unsigned tile[THREADS * 4];
    for (int row = 0; row < 4; row++) tile[row * THREADS + threadIdx.x] = row; // no conflict
    __syncthreads();
    words[threadIdx.x] = tile[threadIdx.x * 4]; // four ways
}

__global__ void contended(unsigned *words) {
    atomicAdd(words + threadIdx.x % 8, 1); // four rounds
}

int main(int argc, char **argv) {
    const Program program("counted", argc, argv);
    unsigned *words;
    CHECK(cudaMalloc(&words, BLOCKS * THREADS * 8 * sizeof(unsigned)));
    CHECK(cudaMemset(words, 0, BLOCKS * THREADS * 8 * sizeof(unsigned)));
    strided<<<BLOCKS, THREADS>>>(words);
    conflicts<<<1, THREADS>>>(words);
    contended<<<BLOCKS, THREADS>>>(words);
    CHECK_KERNEL();
    unsigned first;
    CHECK(cudaMemcpy(&first, words, sizeof first, cudaMemcpyDeviceToHost));
    if (first != BLOCKS * THREADS / 8) Program::fail("%u", first);
    CHECK(cudaFree(words));
    return Program::pass("%u", first);
}
