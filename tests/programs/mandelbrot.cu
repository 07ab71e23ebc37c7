// Mandelbrot set: loops of different length in one warp. The CPU's picture must be the same to the pixel.
#include "program.h"

#include <vector>

constexpr int LIMIT = 100;

// Separate roundings on both sides: a fused multiply-add would change pixels at the edge.
__host__ __device__ __forceinline__ float times(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    volatile float product = a * b;
    return product;
#endif
}

__host__ __device__ __forceinline__ float plus(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

__host__ __device__ __forceinline__ int escape(int x, int y, float scale) {
    const float cx = plus(times(static_cast<float>(x), scale), -2.0f);
    const float cy = plus(times(static_cast<float>(y), scale), -1.0f);
    float zx = 0, zy = 0;
    int steps = 0;
    while (steps < LIMIT) {
        const float xx = times(zx, zx), yy = times(zy, zy);
        if (plus(xx, yy) > 4.0f) break;
        zy = plus(times(2.0f, times(zx, zy)), cy);
        zx = plus(plus(xx, -yy), cx);
        steps++;
    }
    return steps;
}

__global__ void mandelbrot(unsigned char *image, int width, int height, float scale) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) image[y * width + x] = static_cast<unsigned char>(escape(x, y, scale));
}

int main(int argc, char **argv) {
    const Program program("mandelbrot", argc, argv);
    const int height = program.large ? 1000 : 80, width = height * 3 / 2;
    const float scale = 2.0f / height;
    std::vector<unsigned char> image(width * height);
    unsigned char *device;
    CHECK(cudaMalloc(&device, image.size()));
    const dim3 block(16, 8), grid((width + 15) / 16, (height + 7) / 8);
    mandelbrot<<<grid, block>>>(device, width, height, scale);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(image.data(), device, image.size(), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));

    int inside = 0;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            const int got = image[y * width + x], expected = escape(x, y, scale);
            if (got != expected) Program::fail("(%d, %d): %d steps, not %d", x, y, got, expected);
            inside += expected == LIMIT;
        }
    }
    return Program::pass("%dx%d, %d points inside", width, height, inside);
}
