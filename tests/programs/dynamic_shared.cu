// Dynamic shared memory whose size is chosen at the launch, within the default limit and beyond it by opting in.
#include "program.h"

#include <vector>

// Reverses each block's run of words through shared memory.
__global__ void reverse(unsigned *values, int per_block) {
    extern __shared__ unsigned run[];
    unsigned *own = values + static_cast<size_t>(blockIdx.x) * per_block;
    for (int i = threadIdx.x; i < per_block; i += blockDim.x) run[i] = own[i];
    __syncthreads();
    for (int i = threadIdx.x; i < per_block; i += blockDim.x) own[i] = run[per_block - 1 - i];
}

static void reverse_and_check(int blocks, int per_block) {
    std::vector<unsigned> values(static_cast<size_t>(blocks) * per_block);
    for (size_t i = 0; i < values.size(); i++) values[i] = hash(i);
    const std::vector<unsigned> before(values);
    unsigned *device;
    CHECK(cudaMalloc(&device, values.size() * sizeof(unsigned)));
    CHECK(cudaMemcpy(device, values.data(), values.size() * sizeof(unsigned), cudaMemcpyHostToDevice));
    reverse<<<blocks, 128, per_block * sizeof(unsigned)>>>(device, per_block);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values.data(), device, values.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    for (size_t i = 0; i < values.size(); i++) {
        const size_t block = i / per_block, place = i % per_block;
        const unsigned expected = before[block * per_block + (per_block - 1 - place)];
        if (values[i] != expected) {
            Program::fail("runs of %d: values[%zu] = %u, not %u", per_block, i, values[i], expected);
        }
    }
}

int main(int argc, char **argv) {
    const Program program("dynamic_shared", argc, argv);
    const int blocks = program.large ? 4096 : 6;
    reverse_and_check(blocks, 1);
    reverse_and_check(blocks, 1000);
    reverse_and_check(blocks, 48 * 1024 / sizeof(unsigned));

    int limit = 0;
    CHECK(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    if (limit < 48 * 1024) Program::fail("a limit of %d bytes by opting in", limit);
    if (limit > 48 * 1024) {
        CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, limit));
        reverse_and_check(blocks, limit / sizeof(unsigned));
    }
    return Program::pass("%d blocks, up to %d bytes each", blocks, limit);
}
