// A hostile tenant whose kernel leaves an array of its own stack, where spilled registers and return addresses lie.
// Natively a far index ends the context, which neighbours share; PASS means that it lives and later work is right.
#include "program.h"

#include <vector>

constexpr int WORDS = 32;

__global__ void attack(const int *indices, int n, unsigned *found) {
    unsigned own[WORDS];
    for (int i = 0; i < WORDS; i++) own[i] = hash(i);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    // Honest indices first, so that the array has to lie in local memory.
    const unsigned honest = own[indices[i] & (WORDS - 1)];
    own[indices[i]] = 0xbadc0ffeu;
    found[i] = honest ^ own[indices[i] + 1] ^ own[i & (WORDS - 1)];
}

__global__ void work(const int *indices, unsigned *values, int n) {
    unsigned own[WORDS];
    for (int i = 0; i < WORDS; i++) own[i] = hash(i);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = own[indices[i] & (WORDS - 1)];
}

int main(int argc, char **argv) {
    const Program program("attack_local", argc, argv);
    std::vector<int> indices;
    for (int bit = 5; bit < 31; bit++) {
        indices.push_back(1 << bit);
        indices.push_back(-(1 << bit));
    }
    for (unsigned i = 0; i < 200; i++) indices.push_back(static_cast<int>(hash(i)));
    const int n = static_cast<int>(indices.size());
    int *device_indices;
    unsigned *device_found, *device_values;
    std::vector<unsigned> values(n);
    CHECK(cudaMalloc(&device_indices, n * sizeof(int)));
    CHECK(cudaMalloc(&device_found, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_values, n * sizeof(unsigned)));
    CHECK(cudaMemcpy(device_indices, indices.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    attack<<<(n + 63) / 64, 64>>>(device_indices, n, device_found);
    const cudaError_t launched = cudaGetLastError();
    if (launched != cudaSuccess) Program::fail("did not run: %s", cudaGetErrorName(launched));
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) {
        Program::fail("far local indices ended the context: %s (%d)", cudaGetErrorName(error), static_cast<int>(error));
    }
    work<<<(n + 63) / 64, 64>>>(device_indices, device_values, n);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values.data(), device_values, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        const unsigned expected = hash(indices[i] & (WORDS - 1));
        if (values[i] != expected) Program::fail("own work is wrong at %d: %08x, not %08x", i, values[i], expected);
    }
    CHECK(cudaFree(device_indices));
    CHECK(cudaFree(device_found));
    CHECK(cudaFree(device_values));
    return Program::pass("%d far local indices; the context lives", n);
}
