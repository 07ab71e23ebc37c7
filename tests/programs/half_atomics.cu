// Atomic operations on 16 bits: sums of half and bfloat16 and compare-and-swap of a short, in global and shared memory, beside
// halves that others change at the same time.
#include "program.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <vector>

constexpr int PLACES = 8;
constexpr int BLOCK = 256;

// Each thread adds one to a place; a half counts exactly up to 2,048, a bfloat16 up to 256.
__global__ void count(__half *halves, __nv_bfloat16 *brains, unsigned short *shorts, __half *of_blocks, int *taken) {
    __shared__ __half own[PLACES];
    if (threadIdx.x < PLACES) own[threadIdx.x] = __half(0.0f);
    __syncthreads();
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    const int place = thread % PLACES;
    atomicAdd(&halves[place], __half(1.0f));
    if (thread < 128 * PLACES) atomicAdd(&brains[place], __nv_bfloat16(1.0f));
    atomicAdd(&own[place], __half(1.0f));
    // Each number is taken by one thread: who swaps it for the next.
    unsigned short seen = 0;
    for (;;) {
        const unsigned short was = atomicCAS(&shorts[place], seen, static_cast<unsigned short>(seen + 1));
        if (was == seen) break;
        seen = was;
    }
    atomicAdd(&taken[place * 65536 + seen], 1);
    __syncthreads();
    if (threadIdx.x < PLACES) of_blocks[blockIdx.x * PLACES + threadIdx.x] = own[threadIdx.x];
}

// What an operation answers is what was there before.
__global__ void answers(__half *place, __half *before) { before[threadIdx.x] = atomicAdd(place, __half(2.0f)); }

// One half of a word is added to while the other is stored.
__global__ void beside(__half *pair, int turns) {
    for (int turn = 0; turn < turns; turn++) {
        if (threadIdx.x < 32) {
            atomicAdd(&pair[1], __half(1.0f));
        } else if (threadIdx.x == 32) {
            volatile unsigned short *other = reinterpret_cast<volatile unsigned short *>(pair);
            *other = static_cast<unsigned short>(turn + 1);
        }
    }
}

// The word around the last half of an odd number of them is no other's.
constexpr int ODD = 33;
constexpr int ODD_DYNAMIC = 9;
__global__ void odd(__half *out) {
    __shared__ __half own[ODD];
    extern __shared__ __half given[];
    own[threadIdx.x] = __half(0.0f);
    if (threadIdx.x < ODD_DYNAMIC) given[threadIdx.x] = __half(0.0f);
    __syncthreads();
    atomicAdd(&own[threadIdx.x], __half(1.0f));
    if (threadIdx.x < ODD_DYNAMIC) atomicAdd(&given[threadIdx.x], __half(2.0f));
    __syncthreads();
    out[threadIdx.x] = own[threadIdx.x];
    if (threadIdx.x < ODD_DYNAMIC) out[ODD + threadIdx.x] = given[threadIdx.x];
}

__global__ void odd_static(__half *out) {
    __shared__ __half own[ODD];
    own[threadIdx.x] = __half(0.0f);
    __syncthreads();
    atomicAdd(&own[threadIdx.x], __half(1.0f));
    __syncthreads();
    out[threadIdx.x] = own[threadIdx.x];
}

int main(int argc, char **argv) {
    Program program("half_atomics", argc, argv);
    const int blocks = program.large ? 56 : 14;
    const int threads = blocks * BLOCK;
    __half *halves, *of_blocks, *place, *before, *pair;
    __nv_bfloat16 *brains;
    unsigned short *shorts;
    int *taken;
    CHECK(cudaMalloc(&halves, PLACES * sizeof *halves));
    CHECK(cudaMalloc(&brains, PLACES * sizeof *brains));
    CHECK(cudaMalloc(&shorts, PLACES * sizeof *shorts));
    CHECK(cudaMalloc(&of_blocks, blocks * PLACES * sizeof *of_blocks));
    CHECK(cudaMalloc(&taken, PLACES * 65536 * sizeof *taken));
    CHECK(cudaMalloc(&place, sizeof *place));
    CHECK(cudaMalloc(&before, BLOCK * sizeof *before));
    CHECK(cudaMalloc(&pair, 2 * sizeof *pair));
    CHECK(cudaMemset(halves, 0, PLACES * sizeof *halves));
    CHECK(cudaMemset(brains, 0, PLACES * sizeof *brains));
    CHECK(cudaMemset(shorts, 0, PLACES * sizeof *shorts));
    CHECK(cudaMemset(taken, 0, PLACES * 65536 * sizeof *taken));
    CHECK(cudaMemset(place, 0, sizeof *place));
    CHECK(cudaMemset(pair, 0, 2 * sizeof *pair));

    count<<<blocks, BLOCK>>>(halves, brains, shorts, of_blocks, taken);
    answers<<<1, BLOCK>>>(place, before);
    const int turns = program.large ? 60 : 20;
    beside<<<1, 64>>>(pair, turns);
    CHECK(cudaDeviceSynchronize());

    __half *last, *last_static;
    CHECK(cudaMalloc(&last, (ODD + ODD_DYNAMIC) * sizeof *last));
    CHECK(cudaMalloc(&last_static, ODD * sizeof *last_static));
    odd<<<1, ODD, ODD_DYNAMIC * sizeof(__half)>>>(last);
    odd_static<<<1, ODD>>>(last_static);
    std::vector<__half> odds(ODD + ODD_DYNAMIC), odds_static(ODD);
    CHECK(cudaMemcpy(odds.data(), last, odds.size() * sizeof(__half), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(odds_static.data(), last_static, odds_static.size() * sizeof(__half), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(last));
    CHECK(cudaFree(last_static));
    for (int at = 0; at < ODD + ODD_DYNAMIC; at++) {
        if (__half2float(odds[at]) != (at < ODD ? 1 : 2)) Program::fail("odd %d: %g", at, __half2float(odds[at]));
    }
    for (int at = 0; at < ODD; at++) {
        if (__half2float(odds_static[at]) != 1) Program::fail("odd, static, %d: %g", at, __half2float(odds_static[at]));
    }

    std::vector<__half> counted(PLACES), inside(blocks * PLACES), told(BLOCK), both(2);
    std::vector<__nv_bfloat16> brained(PLACES);
    std::vector<int> swapped(PLACES * 65536);
    CHECK(cudaMemcpy(counted.data(), halves, PLACES * sizeof(__half), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(brained.data(), brains, PLACES * sizeof(__nv_bfloat16), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(inside.data(), of_blocks, inside.size() * sizeof(__half), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(swapped.data(), taken, swapped.size() * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(told.data(), before, told.size() * sizeof(__half), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(both.data(), pair, 2 * sizeof(__half), cudaMemcpyDeviceToHost));

    for (void *memory : {(void *)halves, (void *)brains, (void *)shorts, (void *)of_blocks, (void *)taken, (void *)place,
                         (void *)before, (void *)pair}) {
        CHECK(cudaFree(memory));
    }
    for (int at = 0; at < PLACES; at++) {
        const int each = threads / PLACES;
        float sum = 0;
        for (int block = 0; block < blocks; block++) sum += __half2float(inside[block * PLACES + at]);
        if (__half2float(counted[at]) != each || sum != each) {
            Program::fail("place %d: %g and %g in place of %d", at, __half2float(counted[at]), sum, each);
        }
        if (__bfloat162float(brained[at]) != 128) Program::fail("bfloat16 %d: %g", at, __bfloat162float(brained[at]));
        for (int number = 0; number < 65536; number++) {
            if (swapped[at * 65536 + number] != (number < each)) Program::fail("number %d of %d was taken otherwise", number, at);
        }
    }
    std::vector<bool> seen(BLOCK);
    for (__half value : told) {
        const int number = static_cast<int>(__half2float(value)) / 2;
        if (number < 0 || number >= BLOCK || seen[number]) Program::fail("%g was answered twice", __half2float(value));
        seen[number] = true;
    }
    unsigned short stored;
    std::memcpy(&stored, &both[0], sizeof stored);
    if (stored != turns || __half2float(both[1]) != 32 * turns) {
        Program::fail("beside: %u and %g", stored, __half2float(both[1]));
    }
    return Program::pass("%d threads", threads);
}
