// Adds without atomic operations: what comes of that depends on the order of warps, which `bulkhead run --schedule` draws.
#include "program.h"

__global__ void add(volatile int *sum) { *sum = *sum + 1; }

__global__ void add_atomically(int *sum) { atomicAdd(sum, 1); }

int main(int argc, char **argv) {
    const Program program("lost_updates", argc, argv);
    const int blocks = program.large ? 1000 : 4, threads = 64;
    int *sums, found[2];
    CHECK(cudaMalloc(&sums, sizeof found));
    CHECK(cudaMemset(sums, 0, sizeof found));
    add<<<blocks, threads>>>(sums);
    add_atomically<<<blocks, threads>>>(sums + 1);
    CHECK(cudaMemcpy(found, sums, sizeof found, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(sums));
    if (found[1] != blocks * threads) Program::fail("%d atomic additions, not %d", found[1], blocks * threads);
    if (found[0] < 1 || found[0] > found[1]) Program::fail("%d additions", found[0]);
    return Program::pass("%d of %d additions", found[0], found[1]);
}
