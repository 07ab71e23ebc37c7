// CUDA's own error codes, as CUDA 13.0 gives them on an H200: what fails, fails with the code a native program sees, and disturbs nothing after it.
#include "program.h"

#include <cstdint>
#include <vector>

__global__ void fill(unsigned *values, unsigned value, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = value;
}

// Every wrong code is told before the program fails.
static int wrong = 0;

static void expect(const char *what, cudaError_t got, cudaError_t expected) {
    if (got != expected) {
        std::printf("%s: %s (%d), not %s (%d)\n", what, cudaGetErrorName(got), static_cast<int>(got),
                    cudaGetErrorName(expected), static_cast<int>(expected));
        wrong++;
    }
}

// A refused call sets the last error, which reading clears.
static void expect_last(const char *what, cudaError_t got, cudaError_t expected) {
    expect(what, got, expected);
    expect(what, cudaPeekAtLastError(), expected);
    expect(what, cudaGetLastError(), expected);
    expect("cudaGetLastError clears", cudaGetLastError(), cudaSuccess);
}

static void expect_launch(const char *what, cudaError_t expected) {
    expect(what, cudaPeekAtLastError(), expected);
    expect(what, cudaGetLastError(), expected);
    expect("cudaGetLastError clears", cudaGetLastError(), cudaSuccess);
}

int main(int argc, char **argv) {
    const Program program("errors", argc, argv);
    const int n = 1000;
    unsigned *device, *none = nullptr;
    std::vector<unsigned> values(n);
    CHECK(cudaMalloc(&device, n * sizeof(unsigned)));
    CHECK(cudaMemset(device, 0, n * sizeof(unsigned)));

    fill<<<1, 2048>>>(device, 1, n);
    expect_launch("a block of 2048 threads", cudaErrorInvalidValue);
    fill<<<1, dim3(1, 1, 65)>>>(device, 1, n);
    expect_launch("a block 65 deep", cudaErrorInvalidValue);
    fill<<<0, 32>>>(device, 1, n);
    expect_launch("a grid of no blocks", cudaErrorInvalidValue);
    fill<<<dim3(1, 65536), 32>>>(device, 1, n);
    expect_launch("a grid 65536 high", cudaErrorInvalidValue);
    fill<<<1, 32, 1 << 20>>>(device, 1, n);
    expect_launch("a megabyte of shared memory", cudaErrorInvalidValue);

    expect_last("cudaMalloc of an exabyte", cudaMalloc(&none, 1ull << 60), cudaErrorMemoryAllocation);
    expect_last("a copy to the null pointer", cudaMemcpy(nullptr, values.data(), 16, cudaMemcpyHostToDevice),
                cudaErrorInvalidValue);
    expect_last("a copy in no direction",
                cudaMemcpy(device, values.data(), 16, static_cast<cudaMemcpyKind>(99)),
                cudaErrorInvalidMemcpyDirection);
    expect_last("a device that is not there", cudaSetDevice(9999), cudaErrorInvalidDevice);
    expect_last("a property of no device", cudaDeviceGetAttribute(reinterpret_cast<int *>(values.data()),
                                                                  cudaDevAttrWarpSize, 9999),
                cudaErrorInvalidDevice);
    cudaEvent_t start, stop;
    float milliseconds;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    expect_last("the time between events never recorded", cudaEventElapsedTime(&milliseconds, start, stop),
                cudaErrorInvalidResourceHandle);
    CHECK(cudaEventQuery(start));
    CHECK(cudaEventSynchronize(stop));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaFree(nullptr));

    if (std::strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") != 0 ||
        std::strcmp(cudaGetErrorName(cudaErrorInvalidConfiguration), "cudaErrorInvalidConfiguration") != 0) {
        Program::fail("the texts of errors: \"%s\", \"%s\"", cudaGetErrorString(cudaErrorMemoryAllocation),
                      cudaGetErrorName(cudaErrorInvalidConfiguration));
    }

    // None of the refused launches ran, and the context still works.
    CHECK(cudaMemcpy(values.data(), device, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        if (values[i] != 0) Program::fail("a refused launch wrote values[%d] = %u", i, values[i]);
    }
    fill<<<(n + 255) / 256, 256>>>(device, 77, n);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values.data(), device, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        if (values[i] != 77) Program::fail("values[%d] = %u, not 77", i, values[i]);
    }
    CHECK(cudaFree(device));
    expect_last("freeing memory twice", cudaFree(device), cudaErrorInvalidValue);
    if (wrong > 0) Program::fail("%d codes are not CUDA's", wrong);
    return Program::pass("12 refusals with CUDA's codes");
}
