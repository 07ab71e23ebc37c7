// Every atomic operation whose result does not depend on the order, plus locks built of compare-and-swap.
#include "program.h"

#include <climits>
#include <vector>

struct Results {
    int sum, smallest, largest;
    unsigned all_bits, any_bits, odd_bits, wrapped_up, wrapped_down, saturated;
    unsigned long long wide_sum, wide_largest;
    float float_sum;
    double double_sum;
};

__host__ __device__ __forceinline__ int value_of(unsigned i) { return static_cast<int>(hash(i)) >> 8; }

__global__ void combine(Results *results, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int value = value_of(i);
    atomicAdd(&results->sum, value);
    atomicMin(&results->smallest, value);
    atomicMax(&results->largest, value);
    atomicAnd(&results->all_bits, value | 0x10u);
    atomicOr(&results->any_bits, value & 0xf0f0u);
    atomicXor(&results->odd_bits, value);
    atomicInc(&results->wrapped_up, 99u);
    atomicDec(&results->wrapped_down, 99u);
    atomicAdd(&results->wide_sum, static_cast<unsigned long long>(value & 0xffff) << 24);
    atomicMax(&results->wide_largest, static_cast<unsigned long long>(value & 0xffff) << 30);
    atomicAdd(&results->float_sum, 1.0f);
    atomicAdd(&results->double_sum, 0.5);
    // Adds 3 but stops at 1000: the loop every compare-and-swap tutorial has.
    unsigned seen = results->saturated, assumed;
    do {
        assumed = seen;
        seen = atomicCAS(&results->saturated, assumed, assumed + 3 > 1000 ? 1000 : assumed + 3);
    } while (seen != assumed);
}

// A ticket for each thread: every number is drawn once.
__global__ void draw_tickets(unsigned *next, unsigned *drawn, int n) {
    __shared__ unsigned in_block, begin;
    if (threadIdx.x == 0) in_block = 0;
    __syncthreads();
    const bool draws = blockIdx.x * blockDim.x + threadIdx.x < n;
    const unsigned mine = draws ? atomicAdd(&in_block, 1u) : 0;
    __syncthreads();
    if (threadIdx.x == 0) begin = atomicAdd(next, in_block);
    __syncthreads();
    if (draws) atomicExch(&drawn[begin + mine], begin + mine + 1);
}

int main(int argc, char **argv) {
    const Program program("atomics", argc, argv);
    const int n = program.large ? 1 << 20 : 5003, blocks = (n + 127) / 128;
    Results results = {}, expected = {};
    results.smallest = INT_MAX;
    results.largest = INT_MIN;
    results.all_bits = ~0u;
    expected = results;
    for (int i = 0; i < n; i++) {
        const int value = value_of(i);
        expected.sum = static_cast<int>(static_cast<unsigned>(expected.sum) + static_cast<unsigned>(value));
        if (value < expected.smallest) expected.smallest = value;
        if (value > expected.largest) expected.largest = value;
        expected.all_bits &= value | 0x10u;
        expected.any_bits |= value & 0xf0f0u;
        expected.odd_bits ^= static_cast<unsigned>(value);
        expected.wrapped_up = expected.wrapped_up >= 99 ? 0 : expected.wrapped_up + 1;
        expected.wrapped_down =
            expected.wrapped_down == 0 || expected.wrapped_down > 99 ? 99 : expected.wrapped_down - 1;
        const unsigned long long low = value & 0xffff;
        expected.wide_sum += low << 24;
        if (low << 30 > expected.wide_largest) expected.wide_largest = low << 30;
        expected.float_sum += 1.0f;
        expected.double_sum += 0.5;
        expected.saturated = expected.saturated + 3 > 1000 ? 1000 : expected.saturated + 3;
    }

    Results *device_results;
    unsigned *device_next, *device_drawn;
    std::vector<unsigned> drawn(n);
    CHECK(cudaMalloc(&device_results, sizeof results));
    CHECK(cudaMalloc(&device_next, sizeof(unsigned)));
    CHECK(cudaMalloc(&device_drawn, n * sizeof(unsigned)));
    CHECK(cudaMemcpy(device_results, &results, sizeof results, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(device_next, 0, sizeof(unsigned)));
    CHECK(cudaMemset(device_drawn, 0, n * sizeof(unsigned)));
    combine<<<blocks, 128>>>(device_results, n);
    draw_tickets<<<blocks, 128>>>(device_next, device_drawn, n);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(&results, device_results, sizeof results, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(drawn.data(), device_drawn, n * sizeof(unsigned), cudaMemcpyDeviceToHost));

#define SAME(field, format)                                                                              \
    if (results.field != expected.field) {                                                               \
        Program::fail(#field ": " format ", not " format, results.field, expected.field); \
    }
    SAME(sum, "%d")
    SAME(smallest, "%d")
    SAME(largest, "%d")
    SAME(all_bits, "%#x")
    SAME(any_bits, "%#x")
    SAME(odd_bits, "%#x")
    SAME(wrapped_up, "%u")
    SAME(wrapped_down, "%u")
    SAME(saturated, "%u")
    SAME(wide_sum, "%llu")
    SAME(wide_largest, "%llu")
    SAME(float_sum, "%g")
    SAME(double_sum, "%g")
#undef SAME
    for (int i = 0; i < n; i++) {
        if (drawn[i] != static_cast<unsigned>(i) + 1) Program::fail("ticket %d was drawn as %u", i, drawn[i]);
    }

    CHECK(cudaFree(device_results));
    CHECK(cudaFree(device_next));
    CHECK(cudaFree(device_drawn));
    return Program::pass("n=%d, 14 operations", n);
}
