// A tenant of the module `storage` that moves much at once, for its tests.
//
//   blocks write SEED BLOCKS    every block of extent 0 gets what SEED says, by warps and by blocks of threads; then a flush
//   blocks check SEED BLOCKS    reads them so, and compares
#include "cached.cuh"

// Each block of threads takes runs of `run` blocks in turn, and of these the first half by all and the second by one warp.
template <bool WRITES>
__global__ void move(u64 seed, u64 blocks, u64 run, u64 *memory, Wrong *wrong) {
    u64 *mine = memory + blockIdx.x * run * 64;
#pragma unroll 1
    for (u64 first = blockIdx.x * run; first < blocks; first += gridDim.x * run) {
        const u64 count = min(run, blocks - first), half = count / 2;
        for (u64 at = threadIdx.x; WRITES && at < count * 64; at += blockDim.x) mine[at] = word(seed, first * 64 + at);
        __syncthreads();
        u32 code = storage::DONE;
        if (WRITES) code = storage::write_block(0, first, half, mine);
        else code = storage::read_block(0, first, half, mine);
        compare(wrong, code, 0, 0);
        if (threadIdx.x < 32) {
            if (WRITES) code = storage::write_warp(0, first + half, count - half, mine + half * 64);
            else code = storage::read_warp(0, first + half, count - half, mine + half * 64);
            compare(wrong, code, 0, 0);
        }
        __syncthreads();
        for (u64 at = threadIdx.x; !WRITES && at < count * 64; at += blockDim.x) {
            compare(wrong, 0, mine[at], word(seed, first * 64 + at));
        }
        __syncthreads();
    }
}

__global__ void flush(Wrong *wrong) { compare(wrong, storage::flush(0), 0, 0); }

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const u64 seed = argc > 2 ? strtoull(argv[2], nullptr, 0) : 0, blocks = argc > 3 ? strtoull(argv[3], nullptr, 0) : 64;
    constexpr u64 RUN = 333, BLOCKS = 3;
    u64 *memory;
    Wrong *wrong, mistakes;
    CHECK(cudaMalloc(&memory, BLOCKS * RUN * storage::BLOCK_BYTES));
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    if (!strcmp(what, "write")) {
        move<true><<<BLOCKS, 96>>>(seed, blocks, RUN, memory, wrong);
        CHECK(cudaDeviceSynchronize());
        flush<<<1, 1>>>(wrong);
    } else if (!strcmp(what, "check")) {
        move<false><<<BLOCKS, 96>>>(seed, blocks, RUN, memory, wrong);
    } else {
        printf("FAIL no such thing: %s\n", what);
        return 2;
    }
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&mistakes, wrong, sizeof mistakes, cudaMemcpyDeviceToHost));
    if (mistakes.code != storage::DONE) {
        printf("ended with %x\n", mistakes.code);
        return 3;
    }
    printf("%s: %llu wrong\n", what, mistakes.values);
    return mistakes.values == 0 ? 0 : 4;
}
