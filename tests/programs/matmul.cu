// Multiplies two matrices in shared-memory tiles; no side is a multiple of the tile.
#include "program.h"

#include <cmath>
#include <vector>

constexpr int TILE = 16;

// c (rows x columns) = a (rows x inner) * b (inner x columns), all row by row.
__global__ void matmul(const float *a, const float *b, float *c, int rows, int inner, int columns) {
    __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int begin = 0; begin < inner; begin += TILE) {
        const int k_a = begin + threadIdx.x, k_b = begin + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < rows && k_a < inner ? a[row * inner + k_a] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = k_b < inner && column < columns ? b[k_b * columns + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
        __syncthreads();
    }
    if (row < rows && column < columns) c[row * columns + column] = sum;
}

int main(int argc, char **argv) {
    const Program program("matmul", argc, argv);
    const int rows = program.large ? 523 : 100, inner = program.large ? 611 : 133, columns = program.large ? 709 : 84;
    std::vector<float> a(rows * inner), b(inner * columns), c(rows * columns);
    for (size_t i = 0; i < a.size(); i++) a[i] = uniform(i) - 0.5f;
    for (size_t i = 0; i < b.size(); i++) b[i] = uniform(i + a.size()) - 0.5f;

    float *device_a, *device_b, *device_c;
    CHECK(cudaMalloc(&device_a, a.size() * sizeof(float)));
    CHECK(cudaMalloc(&device_b, b.size() * sizeof(float)));
    CHECK(cudaMalloc(&device_c, c.size() * sizeof(float)));
    CHECK(cudaMemcpy(device_a, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_b, b.data(), b.size() * sizeof(float), cudaMemcpyHostToDevice));

    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    const dim3 block(TILE, TILE), grid((columns + TILE - 1) / TILE, (rows + TILE - 1) / TILE);
    CHECK(cudaEventRecord(start));
    matmul<<<grid, block>>>(device_a, device_b, device_c, rows, inner, columns);
    CHECK(cudaEventRecord(stop));
    CHECK_KERNEL();
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    CHECK(cudaMemcpy(c.data(), device_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost));

    // Rounding grows with the magnitudes summed, not with the sum.
    std::vector<double> expected(columns), magnitude(columns);
    double worst = 0;
    for (int row = 0; row < rows; row++) {
        for (int column = 0; column < columns; column++) expected[column] = magnitude[column] = 0;
        for (int k = 0; k < inner; k++) {
            const double left = a[row * inner + k];
            const float *right = &b[k * columns];
            for (int column = 0; column < columns; column++) {
                const double product = left * right[column];
                expected[column] += product;
                magnitude[column] += std::fabs(product);
            }
        }
        for (int column = 0; column < columns; column++) {
            const float got = c[row * columns + column];
            const double error = std::fabs(got - expected[column]) / magnitude[column];
            if (!(error < 1e-5)) Program::fail("c[%d][%d] = %.9g, not %.9g", row, column, got, expected[column]);
            if (error > worst) worst = error;
        }
    }

    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaFree(device_a));
    CHECK(cudaFree(device_b));
    CHECK(cudaFree(device_c));
    return Program::pass("%dx%dx%d kernel %.3f ms, error %.1e", rows, inner, columns, milliseconds, worst);
}
