// Groups of a warp's lanes, after lanes took different ways: partitions by a condition and by a label, tiles, and those that
// happen to be together.
#include "program.h"

#include <algorithm>
#include <vector>

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

/// How many steps it takes to come to 1, at most 200: lanes of a warp come out of it one after another.
__host__ __device__ static unsigned steps(unsigned n) {
    unsigned count = 0;
    while (n > 1 && count < 200) {
        n = n % 2 ? 3 * n + 1 : n / 2;
        count++;
    }
    return count;
}

struct Results {
    unsigned sum, count, labels, tiles, scanned, together, mixed, apart, spun, narrowed, passed;
};

__global__ void binary(unsigned n, unsigned *list, Results *results) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const bool wanted = i < n && steps(i) % 3 == 0;
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const auto group = cg::binary_partition(warp, wanted);
    if (!wanted) return;
    const unsigned part = cg::reduce(group, i, cg::plus<unsigned>());
    unsigned place;
    if (group.thread_rank() == 0) {
        atomicAdd(&results->sum, part);
        place = atomicAdd(&results->count, group.size());
    }
    list[group.shfl(place, 0) + group.thread_rank()] = i;
}

__global__ void labels(unsigned n, Results *results) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned label = steps(i) % 4;
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const auto group = cg::labeled_partition(warp, static_cast<int>(label));
    const unsigned greatest = cg::reduce(group, i < n ? i : 0, cg::greater<unsigned>());
    if (group.thread_rank() == 0) atomicAdd(&results->labels, greatest * (label + 1));
}

template <unsigned Size> __device__ void tile(unsigned n, Results *results) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const auto group = cg::tiled_partition<Size>(cg::this_thread_block());
    // Half of the tiles do it, each as a whole.
    if (group.meta_group_rank() % 2) return;
    const unsigned own = i < n ? steps(i) : 0;
    const unsigned before = cg::exclusive_scan(group, own, cg::plus<unsigned>());
    unsigned sum = own;
    for (unsigned distance = Size / 2; distance; distance /= 2) sum += group.shfl_xor(sum, distance);
    if (group.thread_rank() == Size - 1) {
        atomicAdd(&results->tiles, sum);
        atomicAdd(&results->scanned, before + own);
    }
}

__global__ void tiles(unsigned n, Results *results) {
    tile<4>(n, results);
    tile<8>(n, results);
    tile<16>(n, results);
}

/// Half of each warp waits for itself, before all of it and the block do.
__global__ void mixed(unsigned n, Results *results) {
    __shared__ unsigned sums[8];
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned own = i < n ? steps(i) : 0;
    if (lane < 16) {
        for (unsigned distance = 8; distance; distance /= 2) own += __shfl_xor_sync(0xffff, own, distance);
        own = lane ? 0 : own;
    }
    for (unsigned distance = 16; distance; distance /= 2) own += __shfl_xor_sync(0xffffffff, own, distance);
    if (lane == 0) sums[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned sum = 0;
        for (unsigned warp : sums) sum += warp;
        atomicAdd(&results->mixed, sum);
    }
}

/// Half of each warp waits for itself, and then all of it and the block.
__global__ void apart(unsigned n, Results *results) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    const unsigned own = i < n ? steps(i) : 0;
    __shared__ unsigned left[256];
    if (lane < 16) {
        unsigned sum = own;
        for (unsigned distance = 8; distance; distance /= 2) sum += __shfl_xor_sync(0xffff, sum, distance);
        left[threadIdx.x] = sum;
    }
    __syncwarp();
    if (lane == 16) atomicAdd(&results->apart, left[threadIdx.x - 16]);
    __syncthreads();
    if (lane == 31) atomicAdd(&results->apart, own);
}

/// Tiles take turns by a word that their warp's lanes spin on.
__global__ void spins(Results *results) {
    __shared__ unsigned turn[8];
    const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    const unsigned warp = threadIdx.x / 32, number = threadIdx.x % 32 / 8;
    if (threadIdx.x % 32 == 0) turn[warp] = 0;
    __syncthreads();
    while (atomicAdd(&turn[warp], 0) != number) {}
    const unsigned sum = cg::reduce(tile, threadIdx.x, cg::plus<unsigned>());
    if (tile.thread_rank() == 0) {
        atomicAdd(&results->spun, sum);
        atomicExch(&turn[warp], number + 1);
    }
}

/// Lanes leave an inner loop one after another, whose mask gets smaller, and come back for the next turn of an outer one: one
/// place, where lanes are with different masks.
__global__ void narrows(Results *results) {
    const unsigned lane = threadIdx.x % 32;
    unsigned sum = 0;
    for (unsigned outer = 0; outer < 4; outer++) {
        unsigned mask = 0xffffffff;
        for (unsigned inner = 0;; inner++) {
            const bool goes_on = inner < (lane * 3 + outer) % 5;
            mask = __ballot_sync(mask, goes_on);
            if (!goes_on) break;
            sum += __popc(mask);
        }
    }
    atomicAdd(&results->narrowed, sum);
}

/// One lane passes a place alone, where another already waits for both.
__global__ void passes(Results *results) {
    if (threadIdx.x > 1) return;
    unsigned sum = 0;
    for (int i = 0; i < 3; i++) {
        if (threadIdx.x == 0 && i == 1) continue;
        sum = sum * 100 + __ballot_sync(i == 1 ? 2 : 3, 1);
    }
    atomicAdd(&results->passed, sum);
}

__global__ void together(unsigned n, Results *results) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned own = steps(i);
    if (i < n && own % 2) {
        const auto group = cg::coalesced_threads();
        const unsigned sum = cg::reduce(group, own, cg::plus<unsigned>());
        if (group.thread_rank() == 0) atomicAdd(&results->together, sum);
    }
}

int main(int argc, char **argv) {
    const Program program("partitions", argc, argv);
    const unsigned n = program.large ? 300000 : 3000, threads = 256, blocks = (n + threads - 1) / threads;
    Results expected{};
    std::vector<unsigned> wanted;
    for (unsigned i = 0; i < n; i++) {
        if (steps(i) % 3 == 0) {
            wanted.push_back(i);
            expected.sum += i;
        }
        if (steps(i) % 2) expected.together += steps(i);
        expected.mixed += steps(i);
        if (i % 32 < 16 || i % 32 == 31) expected.apart += steps(i);
        for (unsigned size : {4u, 8u, 16u}) {
            if (i % threads / size % 2 == 0) expected.tiles += steps(i);
        }
    }
    expected.count = static_cast<unsigned>(wanted.size());
    expected.scanned = expected.tiles;
    for (unsigned warp = 0; warp < blocks * threads; warp += 32) {
        unsigned greatest[4] = {};
        bool there[4] = {};
        for (unsigned i = warp; i < warp + 32; i++) {
            const unsigned label = steps(i) % 4;
            there[label] = true;
            if (i < n && i > greatest[label]) greatest[label] = i;
        }
        for (unsigned label = 0; label < 4; label++) expected.labels += there[label] ? greatest[label] * (label + 1) : 0;
    }

    for (unsigned outer = 0; outer < 4; outer++) {
        for (unsigned inner = 0; inner < 5; inner++) {
            unsigned there = 0;
            for (unsigned lane = 0; lane < 32; lane++) there += inner < (lane * 3 + outer) % 5;
            expected.narrowed += 4 * (threads / 32) * there * there;
        }
    }

    Results *results, found{};
    unsigned *list;
    CHECK(cudaMalloc(&results, sizeof *results));
    CHECK(cudaMemset(results, 0, sizeof *results));
    CHECK(cudaMalloc(&list, n * sizeof *list));
    binary<<<blocks, threads>>>(n, list, results);
    labels<<<blocks, threads>>>(n, results);
    tiles<<<blocks, threads>>>(n, results);
    together<<<blocks, threads>>>(n, results);
    mixed<<<blocks, threads>>>(n, results);
    apart<<<blocks, threads>>>(n, results);
    spins<<<4, threads>>>(results);
    narrows<<<4, threads>>>(results);
    passes<<<4, threads>>>(results);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(&found, results, sizeof found, cudaMemcpyDeviceToHost));
    const auto same = [](const char *what, unsigned one, unsigned other) {
        if (one != other) Program::fail("%s: %u, not %u", what, one, other);
    };
    same("count", found.count, expected.count);
    same("sum", found.sum, expected.sum);
    same("labels", found.labels, expected.labels);
    same("tiles", found.tiles, expected.tiles);
    same("scanned", found.scanned, expected.scanned);
    same("together", found.together, expected.together);
    same("mixed", found.mixed, expected.mixed);
    same("apart", found.apart, expected.apart);
    same("spun", found.spun, 4 * (threads * (threads - 1) / 2));
    same("narrowed", found.narrowed, expected.narrowed);
    same("passed", found.passed, 4 * (303 + 30203));
    std::vector<unsigned> listed(wanted.size());
    CHECK(cudaMemcpy(listed.data(), list, listed.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
    std::sort(listed.begin(), listed.end());
    CHECK(cudaFree(list));
    CHECK(cudaFree(results));
    if (listed != wanted) Program::fail("the list is not that of the wanted");
    return Program::pass("%u wanted, %u labelled, %u in tiles", found.count, found.labels, found.tiles);
}
