// Sorts with a bitonic network: stages that fit a block run in shared memory, the wider ones in global memory.
#include "program.h"

#include <algorithm>
#include <vector>

constexpr unsigned THREADS = 256, PER_BLOCK = 2 * THREADS;

__device__ __forceinline__ void order(unsigned &low, unsigned &high, bool ascending) {
    if ((low > high) == ascending) {
        const unsigned kept = low;
        low = high;
        high = kept;
    }
}

// Compares keys `apart` places apart, in runs of `run` keys that alternate in direction.
__global__ void exchange(unsigned *keys, unsigned run, unsigned apart) {
    const unsigned pair = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned low = 2 * pair - (pair & (apart - 1));
    order(keys[low], keys[low + apart], (low & run) == 0);
}

// Does all stages of runs from `first_run` to `last_run` that stay inside a block's keys.
__global__ void exchange_in_block(unsigned *keys, unsigned first_run, unsigned last_run) {
    __shared__ unsigned own[PER_BLOCK];
    const unsigned begin = blockIdx.x * PER_BLOCK;
    own[threadIdx.x] = keys[begin + threadIdx.x];
    own[threadIdx.x + THREADS] = keys[begin + threadIdx.x + THREADS];
    for (unsigned run = first_run; run <= last_run; run *= 2) {
        for (unsigned apart = min(run / 2, THREADS); apart > 0; apart /= 2) {
            __syncthreads();
            const unsigned low = 2 * threadIdx.x - (threadIdx.x & (apart - 1));
            order(own[low], own[low + apart], ((begin + low) & run) == 0);
        }
    }
    __syncthreads();
    keys[begin + threadIdx.x] = own[threadIdx.x];
    keys[begin + threadIdx.x + THREADS] = own[threadIdx.x + THREADS];
}

int main(int argc, char **argv) {
    const Program program("bitonic", argc, argv);
    const unsigned n = program.large ? 1u << 20 : 1u << 13;
    std::vector<unsigned> keys(n), sorted(n);
    for (unsigned i = 0; i < n; i++) keys[i] = hash(i) % (n + n / 2);

    unsigned *device_keys;
    CHECK(cudaMalloc(&device_keys, n * sizeof(unsigned)));
    CHECK(cudaMemcpy(device_keys, keys.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    exchange_in_block<<<n / PER_BLOCK, THREADS>>>(device_keys, 2, PER_BLOCK);
    for (unsigned run = 2 * PER_BLOCK; run <= n; run *= 2) {
        for (unsigned apart = run / 2; apart > THREADS; apart /= 2) {
            exchange<<<n / PER_BLOCK, THREADS>>>(device_keys, run, apart);
        }
        exchange_in_block<<<n / PER_BLOCK, THREADS>>>(device_keys, run, run);
    }
    CHECK_KERNEL();
    CHECK(cudaMemcpy(sorted.data(), device_keys, n * sizeof(unsigned), cudaMemcpyDeviceToHost));

    std::sort(keys.begin(), keys.end());
    for (unsigned i = 0; i < n; i++) {
        if (sorted[i] != keys[i]) Program::fail("key %u: %u, not %u", i, sorted[i], keys[i]);
    }
    CHECK(cudaFree(device_keys));
    return Program::pass("n=%u smallest %u largest %u", n, keys.front(), keys.back());
}
