// A hostile tenant whose kernel leaves its block's shared memory, in an array and through forged addresses. Natively
// this ends the context, which neighbours share; PASS means that the context lives and later work is right.
#include "program.h"

#include <vector>

constexpr int THREADS = 64;

__global__ void attack(const int *indices, const unsigned *addresses, int n, unsigned *found) {
    __shared__ unsigned own[THREADS];
    own[threadIdx.x] = threadIdx.x;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        unsigned got = own[indices[i]];
        own[indices[i] + 1] = 0xbadc0ffeu;
        atomicAdd(&own[indices[i] - 1], 1u);
        unsigned forged;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(addresses[i]), "r"(0xbadc0ffeu) : "memory");
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(forged) : "r"(addresses[i]) : "memory");
        found[i] = got ^ forged;
    }
}

__global__ void work(unsigned *values) {
    __shared__ unsigned own[THREADS];
    own[threadIdx.x] = hash(blockIdx.x * THREADS + threadIdx.x);
    __syncthreads();
    values[blockIdx.x * THREADS + threadIdx.x] = own[THREADS - 1 - threadIdx.x];
}

int main(int argc, char **argv) {
    const Program program("attack_shared", argc, argv);
    std::vector<int> indices;
    std::vector<unsigned> addresses;
    for (int bit = 7; bit < 31; bit++) {
        indices.push_back(1 << bit);
        indices.push_back(-(1 << bit));
        addresses.push_back(1u << bit);
        addresses.push_back(~0u << bit);
    }
    // The odd ones are misaligned as well.
    for (unsigned i = 0; i < 64; i++) {
        indices.push_back(static_cast<int>(hash(i)));
        addresses.push_back(hash(i + 64));
    }
    const int n = static_cast<int>(indices.size());
    int *device_indices;
    unsigned *device_addresses, *device_found;
    CHECK(cudaMalloc(&device_indices, n * sizeof(int)));
    CHECK(cudaMalloc(&device_addresses, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_found, n * sizeof(unsigned)));
    CHECK(cudaMemcpy(device_indices, indices.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_addresses, addresses.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    attack<<<4, THREADS>>>(device_indices, device_addresses, n, device_found);
    const cudaError_t launched = cudaGetLastError();
    if (launched != cudaSuccess) Program::fail("did not run: %s", cudaGetErrorName(launched));
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) {
        Program::fail("forged shared addresses ended the context: %s (%d)", cudaGetErrorName(error),
                      static_cast<int>(error));
    }

    unsigned *device_values;
    std::vector<unsigned> values(8 * THREADS);
    CHECK(cudaMalloc(&device_values, values.size() * sizeof(unsigned)));
    work<<<8, THREADS>>>(device_values);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values.data(), device_values, values.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < values.size(); i++) {
        const unsigned expected = hash(i / THREADS * THREADS + (THREADS - 1 - i % THREADS));
        if (values[i] != expected) Program::fail("own work is wrong at %u: %08x, not %08x", i, values[i], expected);
    }
    CHECK(cudaFree(device_indices));
    CHECK(cudaFree(device_addresses));
    CHECK(cudaFree(device_found));
    CHECK(cudaFree(device_values));
    return Program::pass("%d forged shared accesses; the context lives", 4 * 5 * n);
}
