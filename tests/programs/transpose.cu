// Transposes a matrix, once directly and once through a padded tile in shared memory.
#include "program.h"

#include <vector>

constexpr int TILE = 32, ROWS_PER_PASS = 8;

__global__ void transpose_direct(const unsigned *in, unsigned *out, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[x * height + y] = in[y * width + x];
}

__global__ void transpose_tiled(const unsigned *in, unsigned *out, int width, int height) {
    // One column more than needed, so that a column's words lie in different banks.
    __shared__ unsigned tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS_PER_PASS) {
        if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS_PER_PASS) {
        if (x < height && y + j < width) out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
    }
}

int main(int argc, char **argv) {
    const Program program("transpose", argc, argv);
    const int width = program.large ? 4100 : 301, height = program.large ? 2050 : 210;
    const size_t count = static_cast<size_t>(width) * height, bytes = count * sizeof(unsigned);
    std::vector<unsigned> in(count), direct(count), tiled(count);
    for (size_t i = 0; i < count; i++) in[i] = hash(i);

    unsigned *device_in, *device_direct, *device_tiled;
    CHECK(cudaMalloc(&device_in, bytes));
    CHECK(cudaMalloc(&device_direct, bytes));
    CHECK(cudaMalloc(&device_tiled, bytes));
    CHECK(cudaMemcpy(device_in, in.data(), bytes, cudaMemcpyHostToDevice));

    const dim3 square(16, 16), squares((width + 15) / 16, (height + 15) / 16);
    transpose_direct<<<squares, square>>>(device_in, device_direct, width, height);
    const dim3 block(TILE, ROWS_PER_PASS), grid((width + TILE - 1) / TILE, (height + TILE - 1) / TILE);
    transpose_tiled<<<grid, block>>>(device_in, device_tiled, width, height);
    CHECK_KERNEL();

    CHECK(cudaMemcpy(direct.data(), device_direct, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(tiled.data(), device_tiled, bytes, cudaMemcpyDeviceToHost));
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            const size_t from = static_cast<size_t>(y) * width + x, to = static_cast<size_t>(x) * height + y;
            if (direct[to] != in[from]) Program::fail("direct (%d, %d): %08x, not %08x", x, y, direct[to], in[from]);
            if (tiled[to] != in[from]) Program::fail("tiled (%d, %d): %08x, not %08x", x, y, tiled[to], in[from]);
        }
    }

    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_direct));
    CHECK(cudaFree(device_tiled));
    return Program::pass("%dx%d", width, height);
}
