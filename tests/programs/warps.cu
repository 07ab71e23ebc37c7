// Lanes of a warp that wait for one another: in parts, apart, and beside some that have ended.
// nvcc: -std=c++17 -gencode arch=compute_80,code=[sm_80,compute_80]
#include "program.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <vector>

namespace cg = cooperative_groups;

constexpr int THREADS = 96;
constexpr int BLOCKS = 24;
constexpr unsigned ALL = 0xffffffffu;

// Sums of sixteen neighbours, in tiles of which each goes its own way and as often as it likes.
__global__ void in_tiles(const unsigned *in, unsigned *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const cg::thread_block_tile<16> tile = cg::tiled_partition<16>(cg::this_thread_block());
    unsigned sum = 0;
    for (unsigned turn = 0; turn <= tile.meta_group_rank() % 3; turn++) {
        unsigned mine = in[i] + turn;
        for (int offset = 8; offset > 0; offset /= 2) mine += tile.shfl_xor(mine, offset);
        tile.sync();
        sum += mine;
    }
    if (tile.meta_group_rank() % 2) sum += cg::reduce(tile, in[i] & 255, cg::plus<unsigned>());
    out[i] = sum;
}

// Those that happen to go one way count themselves.
__global__ void coalesced(const unsigned *in, unsigned *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned found = 0;
    if (in[i] % 3 == 0) {
        const cg::coalesced_group group = cg::coalesced_threads();
        found = 1000 * group.size() + group.shfl(in[i] % 1000, 0);
    }
    out[i] = found;
}

// A mask from a vote, within what it was voted on.
__global__ void masked(const unsigned *in, unsigned *out) {
    __shared__ volatile unsigned words[THREADS];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    const bool odd = in[i] & 1;
    const unsigned mask = __ballot_sync(ALL, odd);
    unsigned got = 0;
    if (odd) {
        words[threadIdx.x] = in[i];
        __syncwarp(mask);
        const int first = __ffs(mask) - 1;
        got = words[threadIdx.x - lane + first];
        got ^= __shfl_sync(mask, in[i], 31 - __clz(mask)) + __popc(__match_any_sync(mask, in[i] % 5));
        got += __reduce_max_sync(mask, in[i] % 77);
    }
    out[i] = got;
}

// Barriers of the warp on either way through a branch are one; behind them the block may wait.
template <bool BLOCK> __global__ void either_way(const unsigned *in, unsigned *out) {
    __shared__ volatile unsigned words[THREADS];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned seen;
    if (lane < 16) {
        words[threadIdx.x] = in[i];
        __syncwarp();
        seen = words[threadIdx.x + 16];
    } else {
        words[threadIdx.x] = in[i] + 1;
        __syncwarp();
        seen = words[threadIdx.x - 16];
    }
    if (BLOCK) {
        __syncthreads();
        seen += words[(threadIdx.x + 32) % THREADS];
    }
    out[i] = seen;
}

// Who has nothing to do has ended before the others sum.
__global__ void after_some_have_ended(const unsigned *in, unsigned *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned mine = in[i] & 0xffff;
    for (int offset = 16; offset > 0; offset /= 2) {
        const unsigned other = __shfl_down_sync(ALL, mine, offset);
        const int lane = threadIdx.x % 32;
        if (lane + offset < 32 && i + offset < n) mine += other;
    }
    if (threadIdx.x % 32 == 0) out[i / 32] = mine;
}

// The same with the block: half of the threads have ended, and those that are left wait for each other.
__global__ void block_after_some_have_ended(const unsigned *in, unsigned *out) {
    __shared__ unsigned words[THREADS];
    if (threadIdx.x % 32 >= 20) return;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned mine = in[i];
    for (int lane = 0; lane < static_cast<int>(threadIdx.x % 7); lane++) mine = mine * 3 + 1;
    words[threadIdx.x] = mine + __shfl_sync(ALL, mine, 19);
    __syncthreads();
    out[i] = words[(threadIdx.x + 32) % THREADS] + __popc(__ballot_sync(ALL, mine & 1));
}

int main(int argc, char **argv) {
    const Program program("warps", argc, argv);
    const int n = BLOCKS * THREADS, some = n - 45;
    std::vector<unsigned> in(n), out(n), want(n);
    for (int i = 0; i < n; i++) in[i] = hash(i);
    unsigned *device_in, *device_out;
    CHECK(cudaMalloc(&device_in, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_out, n * sizeof(unsigned)));
    CHECK(cudaMemcpy(device_in, in.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    const auto compare = [&](const char *what) {
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(out.data(), device_out, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (int i = 0; i < n; i++) {
            if (out[i] != want[i]) Program::fail("%s: %u instead of %u at %d", what, out[i], want[i], i);
        }
        CHECK(cudaMemset(device_out, 0, n * sizeof(unsigned)));
        want.assign(n, 0);
    };
    CHECK(cudaMemset(device_out, 0, n * sizeof(unsigned)));

    in_tiles<<<BLOCKS, THREADS>>>(device_in, device_out);
    for (int i = 0; i < n; i++) {
        const unsigned rank = i % THREADS / 16;
        unsigned small = 0;
        for (int k = i / 16 * 16; k < i / 16 * 16 + 16; k++) {
            for (unsigned turn = 0; turn <= rank % 3; turn++) want[i] += in[k] + turn;
            small += in[k] & 255;
        }
        if (rank % 2) want[i] += small;
    }
    compare("tiles");

    coalesced<<<BLOCKS, THREADS>>>(device_in, device_out);
    for (int i = 0; i < n; i++) {
        unsigned size = 0, first = 0;
        for (int k = i / 32 * 32 + 31; k >= i / 32 * 32; k--) {
            if (in[k] % 3 == 0) {
                size++;
                first = in[k] % 1000;
            }
        }
        want[i] = in[i] % 3 == 0 ? 1000 * size + first : 0;
    }
    compare("those that go one way");

    masked<<<BLOCKS, THREADS>>>(device_in, device_out);
    for (int i = 0; i < n; i++) {
        unsigned first = 0, last = 0, alike = 0, most = 0;
        for (int k = i / 32 * 32 + 31; k >= i / 32 * 32; k--) {
            if (!(in[k] & 1)) continue;
            if (!last) last = in[k];
            first = in[k];
            alike += in[k] % 5 == in[i] % 5;
            most = in[k] % 77 > most ? in[k] % 77 : most;
        }
        want[i] = in[i] & 1 ? (first ^ (last + alike)) + most : 0;
    }
    compare("a mask from a vote");

    const auto written = [&](int i) { return i % 32 < 16 ? in[i] : in[i] + 1; };
    either_way<false><<<BLOCKS, THREADS>>>(device_in, device_out);
    for (int i = 0; i < n; i++) want[i] = written(i % 32 < 16 ? i + 16 : i - 16);
    compare("barriers on either way");

    either_way<true><<<BLOCKS, THREADS>>>(device_in, device_out);
    for (int i = 0; i < n; i++) {
        const int other = i / THREADS * THREADS + (i % THREADS + 32) % THREADS;
        want[i] = written(i % 32 < 16 ? i + 16 : i - 16) + written(other);
    }
    compare("barriers on either way, and of the block");

    after_some_have_ended<<<BLOCKS, THREADS>>>(device_in, device_out, some);
    for (int i = 0; i < some; i++) want[i / 32] += in[i] & 0xffff;
    compare("sums after some have ended");

    block_after_some_have_ended<<<BLOCKS, THREADS>>>(device_in, device_out);
    const auto mine = [&](int i) {
        unsigned value = in[i];
        for (int lane = 0; lane < i % THREADS % 7; lane++) value = value * 3 + 1;
        return value;
    };
    for (int i = 0; i < n; i++) {
        if (i % 32 >= 20) continue;
        const int other = i / THREADS * THREADS + (i % THREADS + 32) % THREADS;
        unsigned odd = 0;
        for (int k = i / 32 * 32; k < i / 32 * 32 + 20; k++) odd += mine(k) & 1;
        want[i] = mine(other) + mine(other / 32 * 32 + 19) + odd;
    }
    compare("blocks after some have ended");
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    return Program::pass("%d threads", n);
}
