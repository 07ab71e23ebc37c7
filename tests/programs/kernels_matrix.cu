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


using namespace nvcuda;

// The multiples of eight halves of words between rows keep them in different banks.
constexpr int PAD = 8;

__device__ void load_rows(unsigned (&to)[4], const half *at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(at)) : "memory");
}

__device__ void load_columns(unsigned (&to)[2], const half *at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"(shared_address(at)) : "memory");
}

// Four warps, each 32 x 32 of a tile of 64 x 64, while the next tile is on its way.
__global__ void hgemm_mma(int n, const half *a, const half *b, float *c) {
    __shared__ __align__(16) half tile_a[2][64][32 + PAD], tile_b[2][32][64 + PAD];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row0 = blockIdx.y * 64, column0 = blockIdx.x * 64, row = warp / 2 * 32, column = warp % 2 * 32;
    auto fetch = [&](int stage, int begin) {
        for (int i = threadIdx.x; i < 256; i += 128) {
            copy_async_16(&tile_a[stage][i / 4][i % 4 * 8], &a[(row0 + i / 4) * n + begin + i % 4 * 8]);
            copy_async_16(&tile_b[stage][i / 8][i % 8 * 8], &b[(begin + i / 8) * n + column0 + i % 8 * 8]);
        }
        commit();
    };
    float sums[2][4][4] = {};
    fetch(0, 0);
    for (int begin = 0, stage = 0; begin < n; begin += 32, stage ^= 1) {
        if (begin + 32 < n) {
            fetch(stage ^ 1, begin + 32);
            wait<1>();
        } else {
            wait<0>();
        }
        __syncthreads();
        for (int k = 0; k < 32; k += 16) {
            unsigned left[2][4], right[4][2];
            for (int i = 0; i < 2; i++) load_rows(left[i], &tile_a[stage][row + i * 16 + lane % 16][k + lane / 16 * 8]);
            for (int j = 0; j < 4; j++) load_columns(right[j], &tile_b[stage][k + lane % 16][column + j * 8]);
            for (int i = 0; i < 2; i++) {
                for (int j = 0; j < 4; j++) {
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                                 "{%8, %9}, {%0, %1, %2, %3};"
                                 : "+f"(sums[i][j][0]), "+f"(sums[i][j][1]), "+f"(sums[i][j][2]), "+f"(sums[i][j][3])
                                 : "r"(left[i][0]), "r"(left[i][1]), "r"(left[i][2]), "r"(left[i][3]), "r"(right[j][0]),
                                   "r"(right[j][1]));
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 4; j++) {
            const int y = row0 + row + i * 16 + lane / 4, x = column0 + column + j * 8 + lane % 4 * 2;
            c[y * n + x] = sums[i][j][0], c[y * n + x + 1] = sums[i][j][1];
            c[(y + 8) * n + x] = sums[i][j][2], c[(y + 8) * n + x + 1] = sums[i][j][3];
        }
    }
}

// One warp for 16 x 8, fragments put together by hand from global memory.
__global__ void igemm_mma(int n, const int8_t *a, const int8_t *b, int *c) {
    const int lane = threadIdx.x, row = blockIdx.y * 16 + lane / 4, column = blockIdx.x * 8 + lane / 4;
    int sums[4] = {};
    for (int begin = 0; begin < n; begin += 32) {
        int left[4], right[2] = {};
        for (int i = 0; i < 4; i++) {
            left[i] = *reinterpret_cast<const int *>(&a[(row + i % 2 * 8) * n + begin + i / 2 * 16 + lane % 4 * 4]);
        }
        for (int i = 0; i < 8; i++) {
            const int k = begin + i / 4 * 16 + lane % 4 * 4 + i % 4;
            right[i / 4] |= (b[k * n + column] & 0xff) << (i % 4 * 8);
        }
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                     : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
    }
    for (int i = 0; i < 4; i++) c[(row + i / 2 * 8) * n + blockIdx.x * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

__global__ void tf32_mma(int n, const float *a, const float *b, float *c) {
    const int lane = threadIdx.x, row = blockIdx.y * 16 + lane / 4, column = blockIdx.x * 8 + lane / 4;
    float sums[4] = {};
    for (int begin = 0; begin < n; begin += 8) {
        unsigned left[4], right[2];
        for (int i = 0; i < 4; i++) {
            left[i] = __float_as_uint(a[(row + i % 2 * 8) * n + begin + i / 2 * 4 + lane % 4]);
        }
        for (int i = 0; i < 2; i++) right[i] = __float_as_uint(b[(begin + i * 4 + lane % 4) * n + column]);
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
    }
    for (int i = 0; i < 4; i++) c[(row + i / 2 * 8) * n + blockIdx.x * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

__global__ void dgemm_mma(int n, const double *a, const double *b, double *c) {
    const int lane = threadIdx.x, row = blockIdx.y * 8 + lane / 4, column = blockIdx.x * 8 + lane / 4;
    double sums[2] = {};
    for (int begin = 0; begin < n; begin += 4) {
        const double left = a[row * n + begin + lane % 4], right = b[(begin + lane % 4) * n + column];
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+d"(sums[0]), "+d"(sums[1]) : "d"(left), "d"(right));
    }
    for (int i = 0; i < 2; i++) c[row * n + blockIdx.x * 8 + lane % 4 * 2 + i] = sums[i];
}

// One warp for each tile, straight from global memory.
template <int M, int N, int K, class Tile, class T, class Sum>
__global__ void gemm_wmma(int n, const T *a, const T *b, Sum *c) {
    wmma::fragment<wmma::matrix_a, M, N, K, Tile, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, M, N, K, Tile, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
    wmma::fill_fragment(sum, Sum(0));
    const int row = blockIdx.y * M, column = blockIdx.x * N;
    for (int k = 0; k < n; k += K) {
        wmma::load_matrix_sync(left, a + row * n + k, n);
        wmma::load_matrix_sync(right, b + k * n + column, n);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}

// Four warps share tiles in shared memory; the right factor lies column by column, and the result goes through shared memory.
__global__ void hgemm_wmma_shared(int n, const half *a, const half *b, half *c) {
    __shared__ __align__(32) half tile_a[32][16 + PAD], tile_b[32][16 + PAD], result[32][32 + PAD];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, half> sum;
    wmma::fill_fragment(sum, half(0.0f));
    const int warp = threadIdx.x / 32, row0 = blockIdx.y * 32, column0 = blockIdx.x * 32;
    for (int begin = 0; begin < n; begin += 16) {
        for (int i = threadIdx.x; i < 512; i += 128) {
            tile_a[i / 16][i % 16] = a[(row0 + i / 16) * n + begin + i % 16];
            tile_b[i % 32][i / 32] = b[(begin + i / 32) * n + column0 + i % 32];
        }
        __syncthreads();
        wmma::load_matrix_sync(left, &tile_a[warp / 2 * 16][0], 16 + PAD);
        wmma::load_matrix_sync(right, &tile_b[warp % 2 * 16][0], 16 + PAD);
        wmma::mma_sync(sum, left, right, sum);
        __syncthreads();
    }
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] = sum.x[i] * half(2.0f);
    wmma::store_matrix_sync(&result[warp / 2 * 16][warp % 2 * 16], sum, 32 + PAD, wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < 1024; i += 128) c[(row0 + i / 32) * n + column0 + i % 32] = result[i / 32][i % 32];
}

// Blocks of 8 x 8 of a matrix, transposed within the warp.
__global__ void transpose_matrix(int n, const unsigned short *from, unsigned short *to) {
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const int row = warp / (n / 8) * 8, column = warp % (n / 8) * 8;
    const unsigned pair = *reinterpret_cast<const unsigned *>(&from[(row + lane / 4) * n + column + lane % 4 * 2]);
    unsigned turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    *reinterpret_cast<unsigned *>(&to[(column + lane / 4) * n + row + lane % 4 * 2]) = turned;
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
    const dim3 by16(n / 16, n / 16);
    if (suite.wants("hgemm_mma")) {
        Array<half> a(n * n, small(3)), b(n * n, small(4));
        Array<float> c(n * n);
        suite.run([&] { hgemm_mma<<<dim3(n / 64, n / 64), 128>>>(n, a, b, c); }, [&] { check(a, b, c, 1e-5); });
    }
    if (suite.wants("igemm_mma")) {
        Array<int8_t> a(n * n, [](unsigned i) { return int8_t(hash(i)); }), b(n * n, [](unsigned i) { return int8_t(hash(~i)); });
        Array<int> c(n * n);
        suite.run([&] { igemm_mma<<<dim3(n / 8, n / 16), 32>>>(n, a, b, c); }, [&] { check(a, b, c, 0); });
    }
    if (suite.wants("tf32_mma")) {
        Array<float> a(n * n, small(5)), b(n * n, small(6)), c(n * n);
        suite.run([&] { tf32_mma<<<dim3(n / 8, n / 16), 32>>>(n, a, b, c); }, [&] { check(a, b, c, 1e-5); });
    }
    if (suite.wants("dgemm_mma")) {
        Array<double> a(n * n, small(7)), b(n * n, small(8)), c(n * n);
        suite.run([&] { dgemm_mma<<<dim3(n / 8, n / 8), 32>>>(n, a, b, c); }, [&] { check(a, b, c, 1e-12); });
    }
    if (suite.wants("hgemm_wmma")) {
        Array<half> a(n * n, small(9)), b(n * n, small(10));
        Array<float> c(n * n);
        suite.run([&] { gemm_wmma<16, 16, 16, half, half, float><<<by16, 32>>>(n, a, b, c); }, [&] { check(a, b, c, 1e-5); });
    }
    if (suite.wants("hgemm_wmma_wide")) {
        Array<half> a(n * n, small(11)), b(n * n, small(12));
        Array<float> c(n * n);
        suite.run([&] { gemm_wmma<8, 32, 16, half, half, float><<<dim3(n / 32, n / 8), 32>>>(n, a, b, c); }, [&] { check(a, b, c, 1e-5); });
    }
    if (suite.wants("bgemm_wmma")) {
        Array<__nv_bfloat16> a(n * n, small(13)), b(n * n, small(14));
        Array<float> c(n * n);
        suite.run([&] { gemm_wmma<16, 16, 16, __nv_bfloat16, __nv_bfloat16, float><<<by16, 32>>>(n, a, b, c); }, [&] { check(a, b, c, 1e-5); });
    }
    if (suite.wants("tf32_wmma")) {
        Array<float> a(n * n, small(15)), b(n * n, small(16)), c(n * n);
        suite.run([&] { gemm_wmma<16, 16, 8, wmma::precision::tf32, float, float><<<by16, 32>>>(n, a, b, c); }, [&] { check(a, b, c, 1e-5); });
    }
    if (suite.wants("igemm_wmma")) {
        Array<signed char> a(n * n, [](unsigned i) { return static_cast<signed char>(hash(i + 1)); });
        Array<signed char> b(n * n, [](unsigned i) { return static_cast<signed char>(hash(i + 2)); });
        Array<int> c(n * n);
        suite.run([&] { gemm_wmma<16, 16, 16, signed char, signed char, int><<<by16, 32>>>(n, a, b, c); }, [&] { check(a, b, c, 0); });
    }
    if (suite.wants("dgemm_wmma")) {
        Array<double> a(n * n, small(17)), b(n * n, small(18)), c(n * n);
        suite.run([&] { gemm_wmma<8, 8, 4, double, double, double><<<dim3(n / 8, n / 8), 32>>>(n, a, b, c); }, [&] { check(a, b, c, 1e-12); });
    }
    if (suite.wants("hgemm_wmma_shared")) {
        // Sums of halves are exact as long as they are small.
        Array<half> a(n * n, [](unsigned i) { return float(int(hash(i) % 3) - 1); }), b(n * n, [](unsigned i) { return float(int(hash(~i) % 3) - 1); });
        Array<half> c(n * n);
        suite.run([&] { hgemm_wmma_shared<<<dim3(n / 32, n / 32), 128>>>(n, a, b, c); }, [&] {
            c.down();
            const int step = large ? 61 : 1;
            for (int i = 0; i < n * n; i += step) suite.near(i, c.host[i], 2 * product(a, b, i / n, i % n), 1e-5, 1);
        });
    }
    if (suite.wants("transpose_matrix")) {
        Array<unsigned short> from(n * n, [](unsigned i) { return static_cast<unsigned short>(hash(i)); }), to(n * n);
        suite.run([&] { transpose_matrix<<<n * n / 64 / 4, 128>>>(n, from, to); }, [&] {
            to.down();
            for (int i = 0; i < n * n; i++) suite.equal(i, to.host[i], from.host[i % n * n + i / n]);
        });
    }
    return suite.finish();
}
