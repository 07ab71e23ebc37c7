// Estimates pi twice from one counter-based random sequence: points in a circle (exact counts) and the mean of
// sqrt(1 - x^2) in double precision. The CPU draws the same numbers.
#include "program.h"

#include <cmath>
#include <vector>

constexpr int THREADS = 128;

// Four random words for a counter: Philox 4x32 with ten rounds (Salmon et al., SC 2011).
__host__ __device__ __forceinline__ void philox(unsigned counter, unsigned stream, unsigned word[4]) {
    unsigned key0 = 0xdecafbadu, key1 = 0x600dcafeu;
    word[0] = counter;
    word[1] = stream;
    word[2] = word[3] = 0;
    for (int round = 0; round < 10; round++) {
        const unsigned long long product0 = 0xd2511f53ull * word[0], product1 = 0xcd9e8d57ull * word[2];
        const unsigned old1 = word[1], old3 = word[3];
        word[0] = static_cast<unsigned>(product1 >> 32) ^ old1 ^ key0;
        word[1] = static_cast<unsigned>(product1);
        word[2] = static_cast<unsigned>(product0 >> 32) ^ old3 ^ key1;
        word[3] = static_cast<unsigned>(product0);
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
}

struct Tally {
    unsigned long long inside;
    double height;
};

__host__ __device__ __forceinline__ void sample(unsigned counter, unsigned stream, Tally &tally) {
    unsigned word[4];
    philox(counter, stream, word);
    for (int pair = 0; pair < 4; pair += 2) {
        const double x = word[pair] * 0x1p-32;
        // Squares of 32-bit integers are exact, so both sides agree on every point.
        const unsigned long long xx = static_cast<unsigned long long>(word[pair] >> 1) * (word[pair] >> 1);
        const unsigned long long yy = static_cast<unsigned long long>(word[pair + 1] >> 1) * (word[pair + 1] >> 1);
        if (xx + yy < 1ull << 62) tally.inside++;
        tally.height += sqrt(1.0 - x * x);
    }
}

__global__ void draw(unsigned samples, unsigned long long *inside, double *height) {
    __shared__ double heights[THREADS];
    const unsigned stream = blockIdx.x * blockDim.x + threadIdx.x;
    Tally tally = {0, 0.0};
    for (unsigned i = 0; i < samples; i++) sample(i, stream, tally);
    atomicAdd(inside, tally.inside);
    heights[threadIdx.x] = tally.height;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) heights[threadIdx.x] += heights[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) height[blockIdx.x] = heights[0];
}

int main(int argc, char **argv) {
    const Program program("montecarlo", argc, argv);
    const int blocks = program.large ? 264 : 16;
    const unsigned samples = program.large ? 128 : 20;
    const double points = 2.0 * blocks * THREADS * samples;
    Tally expected = {0, 0.0};
    for (unsigned stream = 0; stream < static_cast<unsigned>(blocks * THREADS); stream++) {
        for (unsigned i = 0; i < samples; i++) sample(i, stream, expected);
    }

    unsigned long long *device_inside, inside = 0;
    double *device_height;
    std::vector<double> heights(blocks);
    CHECK(cudaMalloc(&device_inside, sizeof inside));
    CHECK(cudaMalloc(&device_height, blocks * sizeof(double)));
    CHECK(cudaMemset(device_inside, 0, sizeof inside));
    draw<<<blocks, THREADS>>>(samples, device_inside, device_height);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(&inside, device_inside, sizeof inside, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(heights.data(), device_height, blocks * sizeof(double), cudaMemcpyDeviceToHost));
    double height = 0;
    for (double part : heights) height += part;

    if (inside != expected.inside) Program::fail("%llu points inside, not %llu", inside, expected.inside);
    const double error = std::fabs(height - expected.height) / expected.height;
    if (!(error < 1e-11)) Program::fail("heights sum to %.17g, not %.17g", height, expected.height);
    const double by_points = 4.0 * inside / points, by_height = 4.0 * height / points;
    // Ten standard deviations of the coarser estimate.
    const double allowed = 10.0 * 1.65 / std::sqrt(points);
    if (!(std::fabs(by_points - M_PI) < allowed)) Program::fail("pi by points: %.6f", by_points);
    if (!(std::fabs(by_height - M_PI) < allowed)) Program::fail("pi by heights: %.6f", by_height);

    CHECK(cudaFree(device_inside));
    CHECK(cudaFree(device_height));
    return Program::pass("%.0f points, pi %.6f and %.6f", points, by_points, by_height);
}
