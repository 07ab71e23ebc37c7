// Counts bytes with atomics, once straight in global memory and once in shared memory per block.
#include "program.h"

#include <vector>

constexpr int BINS = 256;

__global__ void count_global(const unsigned char *bytes, unsigned *bins, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&bins[bytes[i]], 1u);
    }
}

__global__ void count_shared(const unsigned char *bytes, unsigned *bins, int n) {
    __shared__ unsigned own[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) own[bin] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&own[bytes[i]], 1u);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        if (own[bin] != 0) atomicAdd(&bins[bin], own[bin]);
    }
}

int main(int argc, char **argv) {
    const Program program("histogram", argc, argv);
    const int n = program.large ? 1 << 25 : 200003;
    const int blocks = program.large ? 528 : 30;
    std::vector<unsigned char> bytes(n);
    std::vector<unsigned> expected(BINS), global(BINS), shared(BINS);
    for (int i = 0; i < n; i++) {
        // Squaring makes low bins crowded, so that atomics collide.
        const float value = uniform(i);
        bytes[i] = static_cast<unsigned char>(value * value * BINS);
        expected[bytes[i]]++;
    }

    unsigned char *device_bytes;
    unsigned *device_global, *device_shared;
    CHECK(cudaMalloc(&device_bytes, n));
    CHECK(cudaMalloc(&device_global, BINS * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_shared, BINS * sizeof(unsigned)));
    CHECK(cudaMemcpy(device_bytes, bytes.data(), n, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(device_global, 0, BINS * sizeof(unsigned)));
    CHECK(cudaMemset(device_shared, 0, BINS * sizeof(unsigned)));

    count_global<<<blocks, 256>>>(device_bytes, device_global, n);
    count_shared<<<blocks, 256>>>(device_bytes, device_shared, n);
    CHECK_KERNEL();

    CHECK(cudaMemcpy(global.data(), device_global, BINS * sizeof(unsigned), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(shared.data(), device_shared, BINS * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int bin = 0; bin < BINS; bin++) {
        if (global[bin] != expected[bin]) Program::fail("global bin %d: %u, not %u", bin, global[bin], expected[bin]);
        if (shared[bin] != expected[bin]) Program::fail("shared bin %d: %u, not %u", bin, shared[bin], expected[bin]);
    }

    CHECK(cudaFree(device_bytes));
    CHECK(cudaFree(device_global));
    CHECK(cudaFree(device_shared));
    return Program::pass("n=%d in %d bins, fullest %u", n, BINS, expected[0]);
}
