// Blocks that wait for one another: as many as fit at once, in several streams, with cooperative groups.
#include "program.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

constexpr int threads = 128;

// Every thread reads in each round what a thread of another block has left in the round before.
__global__ void turn(unsigned *values, int rounds) {
    const cg::grid_group grid = cg::this_grid();
    const unsigned size = static_cast<unsigned>(grid.size()), rank = static_cast<unsigned>(grid.thread_rank());
    for (int round = 0; round < rounds; round++) {
        const unsigned seen = values[(rank + threads + 1) % size];
        grid.sync();
        values[rank] = seen + 1;
        grid.sync();
    }
}

// The sum over the grid, by partial sums of blocks and a second pass behind one barrier.
__global__ void sum(const unsigned *values, unsigned *partial, unsigned *result, int n) {
    const cg::grid_group grid = cg::this_grid();
    const cg::thread_block block = cg::this_thread_block();
    const cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
    unsigned own = 0;
    for (int i = static_cast<int>(grid.thread_rank()); i < n; i += static_cast<int>(grid.size())) own += values[i];
    own = cg::reduce(tile, own, cg::plus<unsigned>());
    if (tile.thread_rank() == 0) atomicAdd(&partial[blockIdx.x], own);
    grid.sync();
    if (grid.thread_rank() == 0) {
        unsigned all = 0;
        for (unsigned i = 0; i < gridDim.x; i++) all += partial[i];
        *result = all;
    }
}

// What cannot wait knows it.
__global__ void valid(int *to) { *to = cg::this_grid().is_valid(); }

int main(int argc, char **argv) {
    const Program program("cooperative", argc, argv);
    int there = 0, processors = 0, fit = 0;
    CHECK(cudaDeviceGetAttribute(&there, cudaDevAttrCooperativeLaunch, 0));
    if (there != 1) Program::fail("there are no cooperative launches");
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, turn, threads, 0));
    if (fit < 1) Program::fail("%d blocks fit", fit);
    const int most = fit * processors, blocks = program.large ? most : most < 24 ? most : 24, rounds = 5;
    const int n = blocks * threads;
    unsigned *values[2], *partial, *result;
    unsigned *const host = static_cast<unsigned *>(std::malloc(n * sizeof(unsigned)));
    cudaStream_t streams[2];
    for (int i = 0; i < 2; i++) {
        CHECK(cudaMalloc(&values[i], n * sizeof(unsigned)));
        CHECK(cudaStreamCreate(&streams[i]));
        for (int k = 0; k < n; k++) host[k] = hash(k + i) % 1000;
        CHECK(cudaMemcpy(values[i], host, n * sizeof(unsigned), cudaMemcpyHostToDevice));
    }
    // Two at once: each has a place of its own to wait at.
    for (int i = 0; i < 2; i++) {
        int turns = rounds;
        void *arguments[] = {&values[i], &turns};
        const void *const kernel = reinterpret_cast<const void *>(turn);
        CHECK(cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(threads), arguments, 0, streams[i]));
    }
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 2; i++) {
        CHECK(cudaMemcpy(host, values[i], n * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (int k = 0; k < n; k++) {
            const unsigned from = static_cast<unsigned>((k + static_cast<long long>(threads + 1) * rounds) % n);
            const unsigned expected = hash(from + i) % 1000 + rounds;
            if (host[k] != expected) Program::fail("%d: [%d] is %u, not %u", i, k, host[k], expected);
        }
    }
    CHECK(cudaMalloc(&partial, blocks * sizeof(unsigned)));
    CHECK(cudaMalloc(&result, sizeof(unsigned)));
    CHECK(cudaMemset(partial, 0, blocks * sizeof(unsigned)));
    int length = n;
    void *arguments[] = {&values[0], &partial, &result, &length};
    CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(sum), dim3(blocks), dim3(threads), arguments));
    unsigned total = 0, expected = 0;
    CHECK(cudaMemcpy(&total, result, sizeof total, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(host, values[0], n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int k = 0; k < n; k++) expected += host[k];
    if (total != expected) Program::fail("the sum is %u, not %u", total, expected);
    // More than fit at once are refused, at once.
    const cudaError_t refused = cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(turn), dim3(most + 1),
                                                            dim3(threads), arguments);
    if (refused != cudaErrorCooperativeLaunchTooLarge) Program::fail("too many blocks: %s", cudaGetErrorName(refused));
    (void)cudaGetLastError();
    // As an attribute of a launch; and without.
    int *seen, is = 0;
    CHECK(cudaMalloc(&seen, sizeof is));
    for (int together = 1; together >= 0; together--) {
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeCooperative;
        attribute.val.cooperative = together;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(1);
        config.blockDim = dim3(1);
        config.attrs = &attribute;
        config.numAttrs = 1;
        CHECK(cudaLaunchKernelEx(&config, valid, seen));
        CHECK_KERNEL();
        CHECK(cudaMemcpy(&is, seen, sizeof is, cudaMemcpyDeviceToHost));
        if (is != together) Program::fail("launched %s, it may wait: %d", together ? "together" : "apart", is);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(cudaFree(values[i]));
        CHECK(cudaStreamDestroy(streams[i]));
    }
    CHECK(cudaFree(partial));
    CHECK(cudaFree(result));
    CHECK(cudaFree(seen));
    return Program::pass("%d blocks of at most %d", blocks, most);
}
