// Sums an array in two ways: a tree in shared memory (exact, unsigned) and warp shuffles (float).
#include "program.h"

#include <cmath>
#include <vector>

constexpr int THREADS = 256;

__global__ void sum_by_tree(const unsigned *in, unsigned *out, int n) {
    __shared__ unsigned partial[THREADS];
    unsigned mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += in[i];
    partial[threadIdx.x] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = partial[0];
}

__device__ __forceinline__ float warp_sum(float mine) {
    for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_down_sync(0xffffffffu, mine, offset);
    return mine;
}

__global__ void sum_by_shuffle(const float *in, float *out, int n) {
    __shared__ float partial[THREADS / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += in[i];
    mine = warp_sum(mine);
    if (lane == 0) partial[warp] = mine;
    __syncthreads();
    if (warp == 0) {
        mine = warp_sum(lane < THREADS / 32 ? partial[lane] : 0.0f);
        if (lane == 0) out[blockIdx.x] = mine;
    }
}

int main(int argc, char **argv) {
    const Program program("reduction", argc, argv);
    const int n = program.large ? (1 << 24) + 17 : 200017;
    const int blocks = program.large ? 512 : 40;
    std::vector<unsigned> words(n);
    std::vector<float> numbers(n);
    unsigned expected_words = 0;
    double expected_numbers = 0;
    for (int i = 0; i < n; i++) {
        words[i] = hash(i);
        numbers[i] = uniform(i);
        expected_words += words[i];
        expected_numbers += numbers[i];
    }

    unsigned *device_words, *device_word_sums, words_sum;
    float *device_numbers, *device_number_sums, numbers_sum;
    CHECK(cudaMalloc(&device_words, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_word_sums, (blocks + 1) * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_numbers, n * sizeof(float)));
    CHECK(cudaMalloc(&device_number_sums, (blocks + 1) * sizeof(float)));
    CHECK(cudaMemcpy(device_words, words.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_numbers, numbers.data(), n * sizeof(float), cudaMemcpyHostToDevice));

    sum_by_tree<<<blocks, THREADS>>>(device_words, device_word_sums, n);
    sum_by_tree<<<1, THREADS>>>(device_word_sums, device_word_sums + blocks, blocks);
    sum_by_shuffle<<<blocks, THREADS>>>(device_numbers, device_number_sums, n);
    sum_by_shuffle<<<1, THREADS>>>(device_number_sums, device_number_sums + blocks, blocks);
    CHECK_KERNEL();

    CHECK(cudaMemcpy(&words_sum, device_word_sums + blocks, sizeof words_sum, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&numbers_sum, device_number_sums + blocks, sizeof numbers_sum, cudaMemcpyDeviceToHost));
    if (words_sum != expected_words) Program::fail("tree: %u, not %u", words_sum, expected_words);
    const double error = std::fabs(numbers_sum - expected_numbers) / expected_numbers;
    if (!(error < 1e-5)) Program::fail("shuffle: %.9g, not %.9g", numbers_sum, expected_numbers);

    CHECK(cudaFree(device_words));
    CHECK(cudaFree(device_word_sums));
    CHECK(cudaFree(device_numbers));
    CHECK(cudaFree(device_number_sums));
    return Program::pass("n=%d sum %u, float error %.1e", n, words_sum, error);
}
