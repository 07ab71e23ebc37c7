// cudaMemset and cudaMemsetAsync: whole arrays, odd lengths and offsets, and their order among other work.
#include "program.h"

#include <vector>

__global__ void increment(unsigned char *bytes, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) bytes[i]++;
}

int main(int argc, char **argv) {
    const Program program("memset", argc, argv);
    const int n = program.large ? (64 << 20) + 13 : 70013;
    std::vector<unsigned char> expected(n), got(n);
    unsigned char *device;
    CHECK(cudaMalloc(&device, n));

    CHECK(cudaMemset(device, 0x5a, n));
    std::memset(expected.data(), 0x5a, n);
    CHECK(cudaMemset(device + 1, 0, 1));
    expected[1] = 0;
    CHECK(cudaMemset(device + 4099, 0x1ff, 8191));  // only the low byte of the value counts
    std::memset(&expected[4099], 0xff, 8191);
    CHECK(cudaMemset(device + n - 3, 7, 3));
    std::memset(&expected[n - 3], 7, 3);
    CHECK(cudaMemset(device + 20, 9, 0));
    CHECK(cudaMemcpy(got.data(), device, n, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        if (got[i] != expected[i]) Program::fail("byte %d: %#x, not %#x", i, got[i], expected[i]);
    }

    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemsetAsync(device, 0x20, n, stream));
    increment<<<(n + 255) / 256, 256, 0, stream>>>(device, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemsetAsync(device + 100, 0x40, 1000, stream));
    increment<<<(n + 255) / 256, 256, 0, stream>>>(device, n);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(got.data(), device, n, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        const unsigned char byte = i >= 100 && i < 1100 ? 0x41 : 0x22;
        if (got[i] != byte) Program::fail("after the stream, byte %d: %#x, not %#x", i, got[i], byte);
    }

    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(device));
    return Program::pass("n=%d", n);
}
