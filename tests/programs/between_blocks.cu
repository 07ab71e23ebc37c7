// Blocks of one launch that hand results to one another: by a ticket, a flag, a lock, and a word that has flag and value.
#include "program.h"

#include <vector>

constexpr int THREADS = 128;

__device__ unsigned tickets;

// Sums of blocks, and their sum by the block that takes the last ticket.
__global__ void sum_by_ticket(const unsigned *in, unsigned *partial, unsigned *total, int n) {
    __shared__ unsigned own[THREADS];
    __shared__ bool last;
    unsigned mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += in[i];
    own[threadIdx.x] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) own[threadIdx.x] += own[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = own[0];
        __threadfence(); // before the ticket
        last = atomicAdd(&tickets, 1) == gridDim.x - 1;
    }
    __syncthreads(); // whether it was the last
    if (last && threadIdx.x == 0) {
        unsigned sum = 0;
        for (unsigned i = 0; i < gridDim.x; i++) sum += partial[i];
        *total = sum;
        tickets = 0;
    }
}

// Each block writes a row behind the one of the block before, which has set its flag.
__global__ void rows_in_turn(unsigned *rows, unsigned *flags) {
    if (blockIdx.x > 0) {
        if (threadIdx.x == 0) {
            while (*reinterpret_cast<volatile unsigned *>(&flags[blockIdx.x - 1]) == 0) {}
            __threadfence(); // behind the flag
        }
        __syncthreads(); // behind the wait
        rows[blockIdx.x * THREADS + threadIdx.x] = rows[(blockIdx.x - 1) * THREADS + threadIdx.x] + 1;
    } else {
        rows[threadIdx.x] = threadIdx.x;
    }
    __threadfence(); // before the flag
    __syncthreads(); // before the flag
    if (threadIdx.x == 0) *reinterpret_cast<volatile unsigned *>(&flags[blockIdx.x]) = 1;
}

// The first thread of each warp adds to a pair of words behind a lock.
__global__ void pair_by_lock(unsigned *lock, unsigned *pair) {
    if (threadIdx.x % 32 != 0) return;
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence(); // behind the lock
    pair[0] += 1;
    pair[1] += pair[0];
    __threadfence(); // before the lock is free
    atomicExch(lock, 0);
}

// Prefix sums of blocks by looking back: a word has the flag and the value, so nothing else needs an order.
__global__ void scan_by_looking_back(const unsigned *in, unsigned *out, unsigned long long *words) {
    __shared__ unsigned before, own[THREADS];
    const int i = blockIdx.x * THREADS + threadIdx.x;
    own[threadIdx.x] = in[i];
    __syncthreads();
    for (int apart = 1; apart < THREADS; apart *= 2) {
        const unsigned left = threadIdx.x >= apart ? own[threadIdx.x - apart] : 0;
        __syncthreads(); // read
        own[threadIdx.x] += left;
        __syncthreads(); // added
    }
    if (threadIdx.x == THREADS - 1) {
        unsigned sum = 0;
        if (blockIdx.x > 0) {
            unsigned long long word;
            do word = atomicAdd(&words[blockIdx.x - 1], 0ull);
            while (word >> 32 == 0);
            sum = static_cast<unsigned>(word);
        }
        atomicExch(&words[blockIdx.x], 1ull << 32 | (sum + own[threadIdx.x]));
        before = sum;
    }
    __syncthreads(); // looked back
    out[i] = before + own[threadIdx.x];
}

int main(int argc, char **argv) {
    const Program program("between_blocks", argc, argv);
    const int blocks = program.large ? 64 : 12, n = blocks * THREADS;
    std::vector<unsigned> in(n), out(n);
    for (int i = 0; i < n; i++) in[i] = hash(i) % 1000;

    unsigned *device_in, *device_out, *partial, *small;
    unsigned long long *words;
    CHECK(cudaMalloc(&device_in, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_out, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&partial, blocks * sizeof(unsigned)));
    CHECK(cudaMalloc(&small, (blocks + 4) * sizeof(unsigned)));
    CHECK(cudaMalloc(&words, blocks * sizeof(unsigned long long)));
    CHECK(cudaMemcpy(device_in, in.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(small, 0, (blocks + 4) * sizeof(unsigned)));
    CHECK(cudaMemset(words, 0, blocks * sizeof(unsigned long long)));
    unsigned *const total = small, *const lock = small + 1, *const pair = small + 2, *const flags = small + 4;

    unsigned expected = 0, sum = 0;
    for (int i = 0; i < n; i++) expected += in[i];
    for (int round = 0; round < 2; round++) {
        sum_by_ticket<<<blocks, THREADS>>>(device_in, partial, total, n);
        CHECK_KERNEL();
        CHECK(cudaMemcpy(&sum, total, sizeof sum, cudaMemcpyDeviceToHost));
        if (sum != expected) Program::fail("ticket: %u, not %u", sum, expected);
    }

    rows_in_turn<<<blocks, THREADS>>>(device_out, flags);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(out.data(), device_out, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        if (out[i] != unsigned(i % THREADS + i / THREADS)) Program::fail("row %d: %u", i / THREADS, out[i]);
    }

    unsigned both[2], times = blocks * (THREADS / 32);
    pair_by_lock<<<blocks, THREADS>>>(lock, pair);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(both, pair, sizeof both, cudaMemcpyDeviceToHost));
    if (both[0] != times || both[1] != times * (times + 1) / 2) Program::fail("lock: %u, %u", both[0], both[1]);

    scan_by_looking_back<<<blocks, THREADS>>>(device_in, device_out, words);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(out.data(), device_out, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int i = 0, so_far = 0; i < n; i++) {
        so_far += in[i];
        if (out[i] != unsigned(so_far)) Program::fail("scan %d: %u, not %d", i, out[i], so_far);
    }

    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    CHECK(cudaFree(partial));
    CHECK(cudaFree(small));
    CHECK(cudaFree(words));
    return Program::pass("%d blocks, sum %u", blocks, sum);
}
