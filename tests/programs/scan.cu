// Exclusive prefix sum over many blocks: scan each block, scan the blocks' sums, add them back.
#include "program.h"

#include <vector>

constexpr int THREADS = 256, PER_BLOCK = 2 * THREADS;

__global__ void scan_blocks(const unsigned *in, unsigned *out, unsigned *sums, int n) {
    __shared__ unsigned values[PER_BLOCK];
    const int first = blockIdx.x * PER_BLOCK + threadIdx.x, second = first + THREADS;
    values[threadIdx.x] = first < n ? in[first] : 0;
    values[threadIdx.x + THREADS] = second < n ? in[second] : 0;
    int stride = 1;
    for (int active = THREADS; active > 0; active /= 2, stride *= 2) {
        __syncthreads();
        if (threadIdx.x < active) {
            const int left = stride * (2 * threadIdx.x + 1) - 1;
            values[left + stride] += values[left];
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = values[PER_BLOCK - 1];
        values[PER_BLOCK - 1] = 0;
    }
    for (int active = 1; active <= THREADS; active *= 2) {
        stride /= 2;
        __syncthreads();
        if (threadIdx.x < active) {
            const int left = stride * (2 * threadIdx.x + 1) - 1, right = left + stride;
            const unsigned kept = values[left];
            values[left] = values[right];
            values[right] += kept;
        }
    }
    __syncthreads();
    if (first < n) out[first] = values[threadIdx.x];
    if (second < n) out[second] = values[threadIdx.x + THREADS];
}

__global__ void add_offsets(unsigned *out, const unsigned *offsets, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += offsets[i / PER_BLOCK];
}

static void scan(const unsigned *in, unsigned *out, int n) {
    const int blocks = (n + PER_BLOCK - 1) / PER_BLOCK;
    unsigned *sums, *offsets;
    CHECK(cudaMalloc(&sums, blocks * sizeof(unsigned)));
    CHECK(cudaMalloc(&offsets, blocks * sizeof(unsigned)));
    scan_blocks<<<blocks, THREADS>>>(in, out, sums, n);
    CHECK(cudaGetLastError());
    if (blocks > 1) {
        scan(sums, offsets, blocks);
        add_offsets<<<(n + THREADS - 1) / THREADS, THREADS>>>(out, offsets, n);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaFree(sums));
    CHECK(cudaFree(offsets));
}

int main(int argc, char **argv) {
    const Program program("scan", argc, argv);
    const int n = program.large ? (1 << 24) + 5 : 40005;
    std::vector<unsigned> in(n), out(n);
    for (int i = 0; i < n; i++) in[i] = hash(i);

    unsigned *device_in, *device_out;
    CHECK(cudaMalloc(&device_in, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_out, n * sizeof(unsigned)));
    CHECK(cudaMemcpy(device_in, in.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    scan(device_in, device_out, n);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(out.data(), device_out, n * sizeof(unsigned), cudaMemcpyDeviceToHost));

    unsigned expected = 0;
    for (int i = 0; i < n; i++) {
        if (out[i] != expected) Program::fail("out[%d] = %u, not %u", i, out[i], expected);
        expected += in[i];
    }

    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    return Program::pass("n=%d total %u", n, expected);
}
