// A product of matrices on the tensor cores: where the rows of a fragment lie is for a register to say. `tensor_cores small
// part` has one thread more than a warp.
// nvcc: -lineinfo
#include "program.h"

#include <cuda_fp16.h>
#include <mma.h>

#include <vector>

constexpr int SIDE = 16;

__global__ void multiply(const __half *a, const __half *b, float *c, int stride) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, SIDE, SIDE, SIDE, __half, row_major> left;
    fragment<matrix_b, SIDE, SIDE, SIDE, __half, row_major> right;
    fragment<accumulator, SIDE, SIDE, SIDE, float> sums;
    fill_fragment(sums, 0.0f);
    load_matrix_sync(left, a, stride); // for whole warps
    load_matrix_sync(right, b, stride);
    mma_sync(sums, left, right, sums);
    store_matrix_sync(c, sums, stride, mem_row_major);
}

int main(int argc, char **argv) {
    const Program program("tensor_cores", argc, argv);
    std::vector<__half> a(SIDE * SIDE), b(SIDE * SIDE);
    std::vector<float> c(SIDE * SIDE);
    for (int i = 0; i < SIDE * SIDE; i++) a[i] = __float2half(hash(i) % 8), b[i] = __float2half(hash(i + 1000) % 8);
    __half *device_a, *device_b;
    float *device_c;
    CHECK(cudaMalloc(&device_a, a.size() * sizeof(__half)));
    CHECK(cudaMalloc(&device_b, b.size() * sizeof(__half)));
    CHECK(cudaMalloc(&device_c, c.size() * sizeof(float)));
    CHECK(cudaMemcpy(device_a, a.data(), a.size() * sizeof(__half), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_b, b.data(), b.size() * sizeof(__half), cudaMemcpyHostToDevice));
    const int threads = argc > 2 && std::strcmp(argv[2], "part") == 0 ? 33 : 32;
    multiply<<<1, threads>>>(device_a, device_b, device_c, SIDE);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(c.data(), device_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (int row = 0; row < SIDE; row++) {
        for (int column = 0; column < SIDE; column++) {
            float expected = 0;
            for (int k = 0; k < SIDE; k++) expected += __half2float(a[row * SIDE + k]) * __half2float(b[k * SIDE + column]);
            if (c[row * SIDE + column] != expected) {
                Program::fail("c[%d][%d] = %g, not %g", row, column, c[row * SIDE + column], expected);
            }
        }
    }
    CHECK(cudaFree(device_a));
    CHECK(cudaFree(device_b));
    CHECK(cudaFree(device_c));
    return Program::pass("%dx%d", SIDE, SIDE);
}
