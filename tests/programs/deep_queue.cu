// Keeps as much work queued as it may, of kernels that are not long, for so many seconds. `deep_queue [SECONDS [TURNS]]`: of 0.6 ms on
// an H200 with 700,000 turns.
#include "program.h"

#include <chrono>

__global__ void some(unsigned *at, unsigned turns) {
    unsigned value = threadIdx.x;
    for (unsigned turn = 0; turn < turns; turn++) value = value * 1664525 + 1013904223;
    at[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

int main(int argc, char **argv) {
    const Program program("deep_queue", argc, argv);
    using Clock = std::chrono::steady_clock;
    const double seconds = argc > 1 ? std::atof(argv[1]) : 0.02;
    const unsigned turns = argc > 2 ? std::atoi(argv[2]) : 200;
    unsigned *at;
    CHECK(cudaMalloc(&at, 8192));
    long launches = 0;
    double longest = 0;
    const auto since = [](Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); };
    for (const Clock::time_point begun = Clock::now(); since(begun) < seconds; launches++) {
        const Clock::time_point launched = Clock::now();
        some<<<16, 128>>>(at, turns);
        CHECK(cudaGetLastError());
        longest = std::max(longest, since(launched));
    }
    const Clock::time_point waits = Clock::now();
    CHECK(cudaDeviceSynchronize());
    const double waited = since(waits);
    CHECK(cudaFree(at));
    return Program::pass("%ld launches, the longest took %.3f s; %.3f s until all were done", launches, longest, waited);
}
