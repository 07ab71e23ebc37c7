// Heat spreading over a plate: a five-point stencil, many iterations between two buffers.
#include "program.h"

#include <cmath>
#include <utility>
#include <vector>

constexpr int SIDE = 16;
constexpr float SPREAD = 0.2f;

__global__ void step(const float *in, float *out, int width, int height) {
    __shared__ float tile[SIDE + 2][SIDE + 2];
    const int x = blockIdx.x * SIDE + threadIdx.x, y = blockIdx.y * SIDE + threadIdx.y;
    const int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    const bool inside = x < width && y < height;
    if (inside) {
        tile[ty][tx] = in[y * width + x];
        if (threadIdx.x == 0 && x > 0) tile[ty][0] = in[y * width + x - 1];
        if (threadIdx.x == SIDE - 1 && x + 1 < width) tile[ty][SIDE + 1] = in[y * width + x + 1];
        if (threadIdx.y == 0 && y > 0) tile[0][tx] = in[(y - 1) * width + x];
        if (threadIdx.y == SIDE - 1 && y + 1 < height) tile[SIDE + 1][tx] = in[(y + 1) * width + x];
    }
    __syncthreads();
    if (!inside) return;
    float value = tile[ty][tx];
    if (x > 0 && y > 0 && x + 1 < width && y + 1 < height) {
        const float around = tile[ty][tx - 1] + tile[ty][tx + 1] + tile[ty - 1][tx] + tile[ty + 1][tx];
        value += SPREAD * (around - 4.0f * value);
    }
    out[y * width + x] = value;
}

int main(int argc, char **argv) {
    const Program program("stencil", argc, argv);
    const int width = program.large ? 1027 : 131, height = program.large ? 771 : 90, iterations = program.large ? 60 : 12;
    const size_t count = static_cast<size_t>(width) * height, bytes = count * sizeof(float);
    std::vector<float> start(count), result(count);
    for (size_t i = 0; i < count; i++) start[i] = 100.0f * uniform(i);

    float *device_in, *device_out;
    CHECK(cudaMalloc(&device_in, bytes));
    CHECK(cudaMalloc(&device_out, bytes));
    CHECK(cudaMemcpy(device_in, start.data(), bytes, cudaMemcpyHostToDevice));
    const dim3 block(SIDE, SIDE), grid((width + SIDE - 1) / SIDE, (height + SIDE - 1) / SIDE);
    for (int i = 0; i < iterations; i++) {
        step<<<grid, block>>>(device_in, device_out, width, height);
        std::swap(device_in, device_out);
    }
    CHECK_KERNEL();
    CHECK(cudaMemcpy(result.data(), device_in, bytes, cudaMemcpyDeviceToHost));

    std::vector<float> now(start), next(start);
    for (int i = 0; i < iterations; i++) {
        for (int y = 1; y + 1 < height; y++) {
            for (int x = 1; x + 1 < width; x++) {
                const float *cell = &now[static_cast<size_t>(y) * width + x];
                const float around = cell[-1] + cell[1] + cell[-width] + cell[width];
                next[static_cast<size_t>(y) * width + x] = cell[0] + SPREAD * (around - 4.0f * cell[0]);
            }
        }
        std::swap(now, next);
    }
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        const double error = std::fabs(static_cast<double>(result[i]) - now[i]);
        if (!(error < 1e-3)) Program::fail("cell %zu: %.9g, not %.9g", i, result[i], now[i]);
        if (error > worst) worst = error;
    }

    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    return Program::pass("%dx%d, %d iterations, error %.1e", width, height, iterations, worst);
}
