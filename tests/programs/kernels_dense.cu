// Dense linear algebra, convolution and transforms: the kernels, each checked against the CPU.
// nvcc: -Xcompiler -O2
#include "kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <complex>

constexpr int TILE = 16;

__global__ void saxpy(int n, float a, const float *x, float *y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

__global__ void copy_float4(int n, const float4 *from, float4 *to) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] = from[i];
}

__global__ void transpose(int n, const float *from, float *to) {
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x < n && y < n) tile[threadIdx.y][threadIdx.x] = from[y * n + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
    if (x < n && y < n) to[y * n + x] = tile[threadIdx.x][threadIdx.y];
}

template <class T> __global__ void gemm_naive(int n, const T *a, const T *b, float *c) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || column >= n) return;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += static_cast<float>(a[row * n + k]) * static_cast<float>(b[k * n + column]);
    c[row * n + column] = sum;
}

template <class T> __global__ void gemm_tiled(int n, const T *a, const T *b, float *c) {
    __shared__ T tile_a[TILE][TILE], tile_b[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int begin = 0; begin < n; begin += TILE) {
        tile_a[threadIdx.y][threadIdx.x] = a[row * n + begin + threadIdx.x];
        tile_b[threadIdx.y][threadIdx.x] = b[(begin + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++) {
            sum += static_cast<float>(tile_a[threadIdx.y][k]) * static_cast<float>(tile_b[k][threadIdx.x]);
        }
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// Every thread computes 4 x 4 elements of a tile of 32 x 32.
__global__ void sgemm_registers(int n, const float *a, const float *b, float *c) {
    __shared__ float tile_a[8][32], tile_b[8][32];
    const int x = threadIdx.x % 8, y = threadIdx.x / 8, row0 = blockIdx.y * 32, column0 = blockIdx.x * 32;
    float sums[4][4] = {};
    for (int begin = 0; begin < n; begin += 8) {
        for (int i = threadIdx.x; i < 256; i += 64) {
            tile_a[i % 8][i / 8] = a[(row0 + i / 8) * n + begin + i % 8];
            tile_b[i / 32][i % 32] = b[(begin + i / 32) * n + column0 + i % 32];
        }
        __syncthreads();
        for (int k = 0; k < 8; k++) {
            float left[4], right[4];
            for (int i = 0; i < 4; i++) left[i] = tile_a[k][y * 4 + i], right[i] = tile_b[k][x * 4 + i];
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

// One warp for a row.
__global__ void gemv(int rows, int columns, const float *a, const float *x, float *y) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0;
    for (int i = lane; i < columns; i += 32) sum += a[row * columns + i] * x[i];
    for (int delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(~0u, sum, delta);
    if (lane == 0) y[row] = sum;
}

__global__ void conv2d(int channels, int size, const float *input, const float *weights, float *output) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, out = blockIdx.z;
    if (x >= size || y >= size) return;
    float sum = 0;
    for (int channel = 0; channel < channels; channel++) {
        for (int dy = -1; dy <= 1; dy++) {
            for (int dx = -1; dx <= 1; dx++) {
                if (x + dx < 0 || x + dx >= size || y + dy < 0 || y + dy >= size) continue;
                sum += input[(channel * size + y + dy) * size + x + dx] *
                       weights[((out * channels + channel) * 3 + dy + 1) * 3 + dx + 1];
            }
        }
    }
    output[(out * size + y) * size + x] = sum;
}

__global__ void jacobi(int n, const float *from, float *to) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    to[y * n + x] = 0.25f * (from[y * n + x - 1] + from[y * n + x + 1] + from[(y - 1) * n + x] + from[(y + 1) * n + x]);
}

// A block for each small matrix, in place, without pivots.
__global__ void lu(int n, float *matrices) {
    extern __shared__ float tile[];
    float *matrix = matrices + static_cast<size_t>(blockIdx.x) * n * n;
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) tile[i] = matrix[i];
    __syncthreads();
    for (int k = 0; k < n; k++) {
        for (int row = k + 1 + threadIdx.x; row < n; row += blockDim.x) tile[row * n + k] /= tile[k * n + k];
        __syncthreads();
        const int rest = n - k - 1;
        for (int i = threadIdx.x; i < rest * rest; i += blockDim.x) {
            const int row = k + 1 + i / rest, column = k + 1 + i % rest;
            tile[row * n + column] -= tile[row * n + k] * tile[k * n + column];
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) matrix[i] = tile[i];
}

// One step of an elimination: row k from all rows below it, and from the right-hand side.
__global__ void gaussian(int n, int k, const float *from, float *to) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column > n || row >= n) return;
    const float own = from[row * (n + 1) + column];
    const float factor = row > k ? from[row * (n + 1) + k] / from[k * (n + 1) + k] : 0.0f;
    to[row * (n + 1) + column] = own - factor * from[k * (n + 1) + column];
}

// A block for each transform of 256 points: bit reversal, then eight stages in shared memory.
__global__ void fft(const float2 *from, float2 *to) {
    __shared__ float2 points[256];
    const int base = blockIdx.x * 256, thread = threadIdx.x;
    for (int i = thread; i < 256; i += 128) points[__brev(i) >> 24] = from[base + i];
    __syncthreads();
    for (int half = 1; half < 256; half *= 2) {
        const int place = thread % half, low = (thread - place) * 2 + place, high = low + half;
        float s, c;
        sincospif(-static_cast<float>(place) / static_cast<float>(half), &s, &c);
        const float2 a = points[low], b = points[high];
        const float2 turned = make_float2(b.x * c - b.y * s, b.x * s + b.y * c);
        points[low] = make_float2(a.x + turned.x, a.y + turned.y);
        points[high] = make_float2(a.x - turned.x, a.y - turned.y);
        __syncthreads();
    }
    for (int i = thread; i < 256; i += 128) to[base + i] = points[i];
}

__global__ void floyd_warshall(int n, int k, int *distances) {
    const int to = blockIdx.x * blockDim.x + threadIdx.x, from = blockIdx.y;
    if (to >= n) return;
    const int through = distances[from * n + k] + distances[k * n + to];
    if (through < distances[from * n + to]) distances[from * n + to] = through;
}

static float centred(unsigned i) { return uniform(i) - 0.5f; }

// The product of square matrices, on the CPU; of large ones some rows.
template <class A, class B> static void check_product(const Suite &suite, int n, const A &a, const B &b,
                                                      const std::vector<float> &c, double tolerance) {
    std::vector<double> row(n), sizes(n);
    for (int i = 0; i < n; i += n > 256 ? 37 : 1) {
        std::fill(row.begin(), row.end(), 0.0);
        std::fill(sizes.begin(), sizes.end(), 0.0);
        for (int k = 0; k < n; k++) {
            for (int j = 0; j < n; j++) {
                const double product = double(float(a[i * n + k])) * float(b[k * n + j]);
                row[j] += product;
                sizes[j] += std::fabs(product);
            }
        }
        for (int j = 0; j < n; j++) suite.near(i * n + j, c[i * n + j], row[j], tolerance, sizes[j]);
    }
}

template <class T> static void products(Suite &suite, const char *naive, const char *tiled, int n) {
    Array<T> a(n * n, [](unsigned i) { return T(centred(i)); }), b(n * n, [](unsigned i) { return T(centred(i + 77777)); });
    Array<float> c(n * n);
    const dim3 block(TILE, TILE), grid(n / TILE, n / TILE);
    const auto check = [&] { check_product(suite, n, a.host, b.host, c.down(), 1e-5); };
    if (suite.wants(naive)) suite.run([&] { gemm_naive<T><<<grid, block>>>(n, a, b, c); }, check);
    c.clear();
    if (suite.wants(tiled)) suite.run([&] { gemm_tiled<T><<<grid, block>>>(n, a, b, c); }, check);
}

int main(int argc, char **argv) {
    Suite suite("kernels_dense", argc, argv);
    const bool large = suite.large;
    if (suite.wants("saxpy")) {
        const int n = large ? 1 << 24 : 5001;
        Array<float> x(n, centred), y(n, [](unsigned i) { return centred(i + 1); });
        const std::vector<float> before = y.host;
        suite.run([&] { saxpy<<<blocks(n, 256), 256>>>(n, 2.5f, x, y); }, [&] {
            y.down();
            for (int i = 0; i < n; i++) suite.near(i, y.host[i], 2.5 * x.host[i] + before[i], 1e-5, 0.1);
        });
    }
    if (suite.wants("copy_float4")) {
        const int n = large ? 1 << 23 : 3000;
        Array<float4> from(n, [](unsigned i) { return make_float4(i, i + 0.25f, i + 0.5f, -float(i)); }), to(n);
        suite.run([&] { copy_float4<<<large ? 1024 : 8, 128>>>(n, from, to); }, [&] {
            to.down();
            for (int i = 0; i < n; i++) suite.equal(i, to.host[i].z + to.host[i].w, from.host[i].z + from.host[i].w);
        });
    }
    if (suite.wants("transpose")) {
        const int n = large ? 4096 : 72;
        Array<float> from(n * n, centred), to(n * n);
        const dim3 grid(blocks(n, TILE), blocks(n, TILE));
        suite.run([&] { transpose<<<grid, dim3(TILE, TILE)>>>(n, from, to); }, [&] {
            to.down();
            for (int i = 0; i < n * n; i++) suite.equal(i, to.host[i], from.host[i % n * n + i / n]);
        });
    }
    const int n = large ? 1024 : 48;
    products<float>(suite, "sgemm_naive", "sgemm_tiled", n);
    products<__half>(suite, "hgemm_naive", "hgemm_tiled", n);
    products<__nv_bfloat16>(suite, "bf16_gemm_naive", "bf16_gemm_tiled", n);
    if (suite.wants("sgemm_registers")) {
        const int side = large ? 1024 : 64;
        Array<float> a(side * side, centred), b(side * side, [](unsigned i) { return centred(i + 5); }), c(side * side);
        suite.run([&] { sgemm_registers<<<dim3(side / 32, side / 32), 64>>>(side, a, b, c); },
                  [&] { check_product(suite, side, a.host, b.host, c.down(), 1e-5); });
    }
    if (suite.wants("gemv")) {
        const int rows = large ? 8192 : 100, columns = large ? 4096 : 130;
        Array<float> a(rows * columns, centred), x(columns, [](unsigned i) { return centred(i + 9); }), y(rows);
        suite.run([&] { gemv<<<blocks(rows * 32, 128), 128>>>(rows, columns, a, x, y); }, [&] {
            y.down();
            for (int row = 0; row < rows; row++) {
                double sum = 0;
                for (int i = 0; i < columns; i++) sum += double(a.host[row * columns + i]) * x.host[i];
                suite.near(row, y.host[row], sum, 1e-5, columns * 0.1);
            }
        });
    }
    if (suite.wants("conv2d")) {
        const int channels = large ? 32 : 3, outputs = large ? 32 : 2, size = large ? 256 : 21;
        Array<float> input(channels * size * size, centred), output(outputs * size * size);
        Array<float> weights(outputs * channels * 9, [](unsigned i) { return centred(i + 3); });
        const dim3 grid(blocks(size, 16), blocks(size, 8), outputs);
        suite.run([&] { conv2d<<<grid, dim3(16, 8)>>>(channels, size, input, weights, output); }, [&] {
            output.down();
            const int step = large ? 977 : 1;
            for (int i = 0; i < outputs * size * size; i += step) {
                const int x = i % size, y = i / size % size, out = i / size / size;
                double sum = 0;
                for (int channel = 0; channel < channels; channel++) {
                    for (int at = 0; at < 9; at++) {
                        const int xx = x + at % 3 - 1, yy = y + at / 3 - 1;
                        if (xx < 0 || yy < 0 || xx >= size || yy >= size) continue;
                        sum += double(input.host[(channel * size + yy) * size + xx]) *
                               weights.host[(out * channels + channel) * 9 + at];
                    }
                }
                suite.near(i, output.host[i], sum, 1e-5, channels);
            }
        });
    }
    if (suite.wants("jacobi")) {
        const int side = large ? 4096 : 70;
        Array<float> from(side * side, centred), to(side * side);
        to.clear();
        const dim3 grid(blocks(side, 32), blocks(side, 8));
        suite.run([&] { jacobi<<<grid, dim3(32, 8)>>>(side, from, to); }, [&] {
            to.down();
            for (int y = 1; y < side - 1; y++) {
                for (int x = 1; x < side - 1; x++) {
                    const float *at = &from.host[y * side + x];
                    const double mean = 0.25 * (double(at[-1]) + at[1] + at[-side] + at[side]);
                    suite.near(y * side + x, to.host[y * side + x], mean, 1e-5, 1);
                }
            }
        });
    }
    if (suite.wants("lu")) {
        const int side = large ? 64 : 24, count = large ? 1024 : 2;
        Array<float> matrices(side * side * count,
                              [&](unsigned i) { return centred(i) + (i % (side * side) % (side + 1) == 0 ? side : 0); });
        const std::vector<float> before = matrices.host;
        suite.run([&] { lu<<<count, 128, side * side * sizeof(float)>>>(side, matrices); }, [&] {
            matrices.down();
            for (int m = 0; m < std::min(count, 4); m++) {
                const float *got = &matrices.host[m * side * side];
                for (int i = 0; i < side * side; i++) {
                    const int row = i / side, column = i % side;
                    double sum = row <= column ? got[i] : 0;
                    for (int k = 0; k < std::min(row, column + 1); k++) {
                        sum += double(got[row * side + k]) * got[k * side + column];
                    }
                    suite.near(i, sum, before[m * side * side + i], 1e-4, 1);
                }
            }
        });
    }
    if (suite.wants("gaussian")) {
        const int side = large ? 2048 : 40, k = 3;
        Array<float> from(side * (side + 1), [&](unsigned i) { return centred(i) + (i % (side + 2) == 0 ? 4 : 0); });
        Array<float> to(side * (side + 1));
        const dim3 grid(blocks(side + 1, 32), blocks(side, 8));
        suite.run([&] { gaussian<<<grid, dim3(32, 8)>>>(side, k, from, to); }, [&] {
            to.down();
            const auto at = [&](int row, int column) { return double(from.host[row * (side + 1) + column]); };
            for (int i = 0; i < side * (side + 1); i++) {
                const int row = i / (side + 1), column = i % (side + 1);
                const double factor = row > k ? at(row, k) / at(k, k) : 0;
                suite.near(i, to.host[i], at(row, column) - factor * at(k, column), 1e-4, 1);
            }
        });
    }
    if (suite.wants("fft")) {
        const int count = large ? 16384 : 3;
        Array<float2> from(count * 256, [](unsigned i) { return make_float2(centred(i), centred(i + 99)); }), to(count * 256);
        suite.run([&] { fft<<<count, 128>>>(from, to); }, [&] {
            to.down();
            for (int t = 0; t < std::min(count, 3); t++) {
                for (int k = 0; k < 256; k++) {
                    std::complex<double> sum = 0;
                    for (int i = 0; i < 256; i++) {
                        const float2 point = from.host[t * 256 + i];
                        sum += std::complex<double>(point.x, point.y) * std::polar(1.0, -2 * M_PI * (i * k % 256) / 256);
                    }
                    suite.near(k, to.host[t * 256 + k].x, sum.real(), 1e-4, 10);
                    suite.near(k, to.host[t * 256 + k].y, sum.imag(), 1e-4, 10);
                }
            }
        });
    }
    if (suite.wants("floyd_warshall")) {
        const int side = large ? 2048 : 64;
        Array<int> distances(side * side, [&](unsigned i) { return i % (side + 1) == 0 ? 0 : int(hash(i) % 1000 + 1); });
        std::vector<int> expected = distances.host;
        const int k = 7;
        suite.run([&] { floyd_warshall<<<dim3(blocks(side, 128), side), 128>>>(side, k, distances); }, [&] {
            distances.down();
            for (int i = 0; i < side * side; i++) {
                const int through = expected[i / side * side + k] + expected[k * side + i % side];
                suite.equal(i, distances.host[i], std::min(expected[i], through));
            }
        });
    }
    return suite.finish();
}
