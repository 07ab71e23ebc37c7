// Matrix products through asynchronous copies and tensor cores, each checked against the CPU.
// nvcc: -Xcompiler -O2 -arch=sm_80
#include "kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <cstdint>

__device__ unsigned shared_address(const void *at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }

__device__ void copy_async_16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// Only so many of the 16 bytes are read, the others are zero.
__device__ void copy_async_part(void *to, const void *from, unsigned bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

// Every thread computes 4 x 4 elements of a tile of 64 x 64, while the next two tiles are on their way.
__global__ void sgemm_async(int n, const float *a, const float *b, float *c) {
    __shared__ __align__(16) float tile_a[2][64][16], tile_b[2][16][64];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16, row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
    auto fetch = [&](int stage, int begin) {
        const int i = threadIdx.x;
        copy_async_16(&tile_a[stage][i / 4][i % 4 * 4], &a[(row0 + i / 4) * n + begin + i % 4 * 4]);
        copy_async_16(&tile_b[stage][i / 16][i % 16 * 4], &b[(begin + i / 16) * n + column0 + i % 16 * 4]);
        commit();
    };
    float sums[4][4] = {};
    fetch(0, 0);
    for (int begin = 0, stage = 0; begin < n; begin += 16, stage ^= 1) {
        if (begin + 16 < n) {
            fetch(stage ^ 1, begin + 16);
            wait<1>();
        } else {
            wait<0>();
        }
        __syncthreads();
        for (int k = 0; k < 16; k++) {
            float left[4], right[4];
            for (int i = 0; i < 4; i++) left[i] = tile_a[stage][y * 4 + i][k], right[i] = tile_b[stage][k][x * 4 + i];
            for (int i = 0; i < 4; i++) {
                for (int j = 0; j < 4; j++) sums[i][j] += left[i] * right[j];
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) c[(row0 + y * 4 + i) * n + column0 + x * 4 + j] = sums[i][j];
    }
}

// Sums of windows of a signal of which the last part is missing.
__global__ void window_async(int n, int valid, const float *from, float *to) {
    __shared__ __align__(16) float part[4 * 128 + 16];
    const int begin = blockIdx.x * 512;
    for (int i = threadIdx.x; i < 132; i += blockDim.x) {
        const int at = begin + i * 4, left = min(max(valid - at, 0), 4) * 4;
        copy_async_part(&part[i * 4], from + (left > 0 ? at : 0), left);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int i = threadIdx.x; i < 512 && begin + i < n; i += blockDim.x) {
        float sum = 0;
        for (int k = 0; k < 16; k++) sum += part[i + k];
        to[begin + i] = sum;
    }
}

int main(int argc, char **argv) {
    Suite suite("kernels_matrix", argc, argv);
    const bool large = suite.large;
    const int n = large ? 1024 : 128;
    // Small numbers of which every product and sum is exact.
    auto small = [](unsigned seed) {
        return [=](unsigned i) { return static_cast<float>(static_cast<int>(hash(i * 2 + seed) % 9) - 4) / 2; };
    };
    auto product = [&](auto &a, auto &b, int row, int column) {
        double sum = 0;
        for (int k = 0; k < n; k++) sum += double(a.host[row * n + k]) * double(b.host[k * n + column]);
        return sum;
    };
    auto check = [&](auto &a, auto &b, auto &c, double tolerance) {
        c.down();
        const int step = large ? 61 : 1;
        for (int i = 0; i < n * n; i += step) suite.near(i, c.host[i], product(a, b, i / n, i % n), tolerance, 1);
    };
    if (suite.wants("sgemm_async")) {
        Array<float> a(n * n, small(0)), b(n * n, small(1)), c(n * n);
        suite.run([&] { sgemm_async<<<dim3(n / 64, n / 64), 256>>>(n, a, b, c); }, [&] { check(a, b, c, 1e-6); });
    }
    if (suite.wants("window_async")) {
        const int count = large ? 1 << 22 : 5000, valid = count - 1001;
        Array<float> from(count, small(2)), to(count);
        suite.run([&] { window_async<<<blocks(count, 512), 128>>>(count, valid, from, to); }, [&] {
            to.down();
            for (int i = 0; i < count; i++) {
                float sum = 0;
                for (int k = i; k < std::min(i + 16, valid); k++) sum += from.host[k];
                suite.near(i, to.host[i], sum, 1e-6);
            }
        });
    }
    return suite.finish();
}
