// What neural networks are made of: the kernels, each checked against the CPU.
// nvcc: -Xcompiler -O2
#include "kernels.h"

// The sum, or the largest, over a block of 128 threads.
template <class Combine> __device__ float over_block(float value, float *shared, Combine combine) {
    for (int delta = 16; delta > 0; delta /= 2) value = combine(value, __shfl_xor_sync(~0u, value, delta));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = combine(combine(shared[0], shared[1]), combine(shared[2], shared[3]));
    __syncthreads();
    return value;
}

struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};

struct Larger {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

__global__ void softmax(int columns, const float *from, float *to) {
    __shared__ float shared[4];
    const float *row = from + blockIdx.x * columns;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) most = fmaxf(most, row[i]);
    most = over_block(most, shared, Larger());
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += __expf(row[i] - most);
    sum = over_block(sum, shared, Sum());
    for (int i = threadIdx.x; i < columns; i += blockDim.x) to[blockIdx.x * columns + i] = __expf(row[i] - most) / sum;
}

__global__ void layer_norm(int columns, const float *from, const float *scale, const float *shift, float *to) {
    __shared__ float shared[4];
    const float *row = from + blockIdx.x * columns;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i];
    const float mean = over_block(sum, shared, Sum()) / columns;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
    const float inverse = rsqrtf(over_block(squares, shared, Sum()) / columns + 1e-5f);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        to[blockIdx.x * columns + i] = (row[i] - mean) * inverse * scale[i] + shift[i];
    }
}

__global__ void rms_norm(int columns, const float *from, const float *scale, float *to) {
    __shared__ float shared[4];
    const float *row = from + blockIdx.x * columns;
    float squares = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) squares += row[i] * row[i];
    const float inverse = rsqrtf(over_block(squares, shared, Sum()) / columns + 1e-5f);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) to[blockIdx.x * columns + i] = row[i] * inverse * scale[i];
}

// A warp for each query of a head of 32 dimensions: one pass over keys and values.
__global__ void attention(int tokens, const float *queries, const float *keys, const float *values, float *to) {
    __shared__ float tile_k[32][33], tile_v[32][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y;
    const int query = blockIdx.x * (blockDim.x / 32) + warp;
    const size_t base = static_cast<size_t>(head) * tokens * 32;
    const float own = query < tokens ? queries[base + query * 32 + lane] : 0.0f;
    float most = -INFINITY, sum = 0, out = 0;
    for (int begin = 0; begin < tokens; begin += 32) {
        for (int row = warp; row < 32; row += blockDim.x / 32) {
            const bool inside = begin + row < tokens;
            tile_k[row][lane] = inside ? keys[base + (begin + row) * 32 + lane] : 0.0f;
            tile_v[row][lane] = inside ? values[base + (begin + row) * 32 + lane] : 0.0f;
        }
        __syncthreads();
        float score = 0;
        for (int d = 0; d < 32; d++) score += __shfl_sync(~0u, own, d) * tile_k[lane][d];
        score = begin + lane < tokens ? score * 0.17677669f : -INFINITY;
        float tile_most = score;
        for (int delta = 16; delta > 0; delta /= 2) tile_most = fmaxf(tile_most, __shfl_xor_sync(~0u, tile_most, delta));
        const float next = fmaxf(most, tile_most), rescale = __expf(most - next), weight = __expf(score - next);
        float tile_sum = weight;
        for (int delta = 16; delta > 0; delta /= 2) tile_sum += __shfl_xor_sync(~0u, tile_sum, delta);
        sum = sum * rescale + tile_sum;
        out *= rescale;
        for (int j = 0; j < 32; j++) out += __shfl_sync(~0u, weight, j) * tile_v[j][lane];
        most = next;
        __syncthreads();
    }
    if (query < tokens) to[base + query * 32 + lane] = out / sum;
}

__global__ void rotary(int tokens, int half, float *x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= tokens * half) return;
    const int token = i / half, pair = i % half;
    const float angle = token * __powf(10000.0f, -static_cast<float>(pair) / half);
    float s, c;
    sincosf(angle, &s, &c);
    const float a = x[token * 2 * half + pair], b = x[token * 2 * half + half + pair];
    x[token * 2 * half + pair] = a * c - b * s;
    x[token * 2 * half + half + pair] = a * s + b * c;
}

__global__ void gelu(int n, const float *from, const float *bias, int columns, float *to) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float x = from[i] + bias[i % columns];
    to[i] = 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

__global__ void cross_entropy(int classes, const float *logits, const int *labels, float *losses, float *gradients) {
    __shared__ float shared[4];
    const float *row = logits + blockIdx.x * classes;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < classes; i += blockDim.x) most = fmaxf(most, row[i]);
    most = over_block(most, shared, Larger());
    for (int i = threadIdx.x; i < classes; i += blockDim.x) sum += __expf(row[i] - most);
    sum = over_block(sum, shared, Sum());
    const int label = labels[blockIdx.x];
    if (threadIdx.x == 0) losses[blockIdx.x] = logf(sum) + most - row[label];
    for (int i = threadIdx.x; i < classes; i += blockDim.x) {
        gradients[blockIdx.x * classes + i] = __expf(row[i] - most) / sum - (i == label ? 1.0f : 0.0f);
    }
}

__global__ void adam(int n, int step, const float *gradients, float *weights, float *means, float *squares) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float gradient = gradients[i];
    const float mean = 0.9f * means[i] + 0.1f * gradient, square = 0.999f * squares[i] + 0.001f * gradient * gradient;
    means[i] = mean;
    squares[i] = square;
    const float corrected = mean / (1.0f - powf(0.9f, step)), spread = square / (1.0f - powf(0.999f, step));
    weights[i] -= 0.001f * corrected / (sqrtf(spread) + 1e-8f);
}

// A block for each row: its scale, then its bytes.
__global__ void quantise(int columns, const float *from, signed char *to, float *scales) {
    __shared__ float shared[4];
    const float *row = from + blockIdx.x * columns;
    float most = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) most = fmaxf(most, fabsf(row[i]));
    const float scale = over_block(most, shared, Larger()) / 127.0f;
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        to[blockIdx.x * columns + i] = static_cast<signed char>(__float2int_rn(row[i] / scale));
    }
}

__global__ void dequantise(int n, int columns, const char4 *from, const float *scales, float4 *to) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const char4 bytes = from[i];
    const float scale = scales[i * 4 / columns];
    to[i] = make_float4(bytes.x * scale, bytes.y * scale, bytes.z * scale, bytes.w * scale);
}

// A matrix of bytes by one of bytes, transposed, four products at a time.
__global__ void int8_gemm(int n, const int *a, const int *b, int *c) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || column >= n) return;
    int sum = 0;
    for (int k = 0; k < n / 4; k++) {
        const char4 left = reinterpret_cast<const char4 *>(a)[row * (n / 4) + k];
        const char4 right = reinterpret_cast<const char4 *>(b)[column * (n / 4) + k];
        sum += left.x * right.x + left.y * right.y + left.z * right.z + left.w * right.w;
    }
    c[row * n + column] = sum;
}

// A block for each row of 256: a bitonic sort of values with their places, of which the first k stay.
__global__ void top_k(int k, const float *from, float *values, int *places) {
    __shared__ float sorted[256];
    __shared__ int from_where[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) sorted[i] = from[blockIdx.x * 256 + i], from_where[i] = i;
    __syncthreads();
    for (int size = 2; size <= 256; size *= 2) {
        for (int stride = size / 2; stride > 0; stride /= 2) {
            const int low = (threadIdx.x / stride) * stride * 2 + threadIdx.x % stride, high = low + stride;
            const bool descending = (low & size) == 0;
            if ((sorted[low] < sorted[high]) == descending) {
                const float value = sorted[low];
                const int place = from_where[low];
                sorted[low] = sorted[high], from_where[low] = from_where[high];
                sorted[high] = value, from_where[high] = place;
            }
            __syncthreads();
        }
    }
    if (threadIdx.x < k) {
        values[blockIdx.x * k + threadIdx.x] = sorted[threadIdx.x];
        places[blockIdx.x * k + threadIdx.x] = from_where[threadIdx.x];
    }
}

__global__ void embedding_gather(int width, const int *tokens, const float4 *table, float4 *to) {
    for (int i = threadIdx.x; i < width; i += blockDim.x) to[blockIdx.x * width + i] = table[tokens[blockIdx.x] * width + i];
}

__global__ void embedding_scatter(int width, const int *tokens, const float *gradients, float *table) {
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        atomicAdd(&table[tokens[blockIdx.x] * width + i], gradients[blockIdx.x * width + i]);
    }
}

// The gradient of a layer's weights, and the step along it.
__global__ void backprop(int inputs, int outputs, const float *errors, const float *activations, float *weights, float *last) {
    const int out = blockIdx.x * blockDim.x + threadIdx.x, in = blockIdx.y * blockDim.y + threadIdx.y;
    if (out >= outputs || in >= inputs) return;
    const float change = 0.3f * errors[out] * activations[in] + 0.3f * last[in * outputs + out];
    weights[in * outputs + out] += change;
    last[in * outputs + out] = change;
}

static float centred(unsigned i) { return 4 * uniform(i) - 2; }

int main(int argc, char **argv) {
    Suite suite("kernels_ml", argc, argv);
    const bool large = suite.large;
    const int rows = large ? 4096 : 5, columns = large ? 4096 : 200;
    {
        Array<float> from(rows * columns, centred), to(rows * columns), losses(rows);
        Array<float> scale(columns, [](unsigned i) { return centred(i + 5); }), shift(columns, [](unsigned i) { return centred(i + 6); });
        Array<int> labels(rows, [&](unsigned i) { return int(hash(i) % columns); });
        const auto each_row = [&](auto check) {
            to.down();
            for (int row = 0; row < std::min(rows, 16); row++) {
                const float *in = &from.host[row * columns];
                double most = in[0], sum = 0, total = 0, squares = 0, spread = 0;
                for (int i = 0; i < columns; i++) most = std::max(most, double(in[i])), total += in[i];
                for (int i = 0; i < columns; i++) {
                    sum += std::exp(in[i] - most), squares += double(in[i]) * in[i];
                    spread += (in[i] - total / columns) * (in[i] - total / columns);
                }
                for (int i = 0; i < columns; i++) {
                    const double x = in[i], softened = std::exp(x - most) / sum;
                    const double normed = (x - total / columns) / std::sqrt(spread / columns + 1e-5);
                    const double scaled = x / std::sqrt(squares / columns + 1e-5);
                    suite.near(row * columns + i, to.host[row * columns + i], check(row, i, softened, normed, scaled), 1e-4, 0.01);
                }
            }
        };
        if (suite.wants("softmax")) {
            suite.run([&] { softmax<<<rows, 128>>>(columns, from, to); },
                      [&] { each_row([](int, int, double softened, double, double) { return softened; }); });
        }
        if (suite.wants("layer_norm")) {
            suite.run([&] { layer_norm<<<rows, 128>>>(columns, from, scale, shift, to); }, [&] {
                each_row([&](int, int i, double, double normed, double) { return normed * scale.host[i] + shift.host[i]; });
            });
        }
        if (suite.wants("rms_norm")) {
            suite.run([&] { rms_norm<<<rows, 128>>>(columns, from, scale, to); },
                      [&] { each_row([&](int, int i, double, double, double scaled) { return scaled * scale.host[i]; }); });
        }
        if (suite.wants("cross_entropy")) {
            suite.run([&] { cross_entropy<<<rows, 128>>>(columns, from, labels, losses, to); }, [&] {
                losses.down();
                each_row([&](int row, int i, double softened, double, double) {
                    if (i != labels.host[row]) return softened;
                    suite.near(row, losses.host[row], -std::log(softened), 1e-4, 1);
                    return softened - 1;
                });
            });
        }
        if (suite.wants("gelu")) {
            suite.run([&] { gelu<<<blocks(rows * columns, 256), 256>>>(rows * columns, from, shift, columns, to); }, [&] {
                each_row([&](int row, int i, double, double, double) {
                    const double x = double(from.host[row * columns + i]) + shift.host[i];
                    return 0.5 * x * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
                });
            });
        }
        if (suite.wants("quantise")) {
            Array<signed char> bytes(rows * columns);
            Array<float> scales(rows);
            suite.run([&] { quantise<<<rows, 128>>>(columns, from, bytes, scales); }, [&] {
                bytes.down(), scales.down();
                for (int i = 0; i < rows * columns; i++) {
                    // Halfway cases may go either way.
                    const double exact = from.host[i] / double(scales.host[i / columns]);
                    if (!(std::fabs(bytes.host[i] - exact) <= 0.5001)) suite.wrong(i, bytes.host[i], exact);
                }
                float most = 0;
                for (int i = 0; i < columns; i++) most = std::max(most, std::fabs(from.host[i]));
                suite.near(0, scales.host[0], most / 127, 1e-5);
            });
        }
        if (suite.wants("dequantise")) {
            Array<char4> bytes(rows * columns / 4, [](unsigned i) {
                const unsigned word = hash(i);
                return make_char4(word, word >> 8, word >> 16, word >> 24);
            });
            Array<float> scales(rows, [](unsigned i) { return uniform(i) + 0.1f; });
            const int n = rows * columns / 4;
            suite.run([&] { dequantise<<<blocks(n, 128), 128>>>(n, columns, bytes, scales, reinterpret_cast<float4 *>(to.operator float *())); },
                      [&] {
                          to.down();
                          for (int i = 0; i < n; i++) {
                              suite.equal(i, to.host[4 * i], bytes.host[i].x * scales.host[4 * i / columns]);
                              suite.equal(i, to.host[4 * i + 3], bytes.host[i].w * scales.host[4 * i / columns]);
                          }
                      });
        }
    }
    if (suite.wants("attention")) {
        const int heads = large ? 32 : 2, tokens = large ? 1024 : 40, n = heads * tokens * 32;
        Array<float> q(n, centred), k(n, [](unsigned i) { return centred(i + 1); }), v(n, [](unsigned i) { return centred(i + 2); }), to(n);
        suite.run([&] { attention<<<dim3(blocks(tokens, 4), heads), 128>>>(tokens, q, k, v, to); }, [&] {
            to.down();
            const int step = large ? 131 : 1;
            for (int row = 0; row < heads * tokens; row += step) {
                const int head = row / tokens;
                std::vector<double> weights(tokens), out(32, 0.0);
                double sum = 0;
                for (int j = 0; j < tokens; j++) {
                    double score = 0;
                    for (int d = 0; d < 32; d++) score += double(q.host[row * 32 + d]) * k.host[(head * tokens + j) * 32 + d];
                    sum += weights[j] = std::exp(score / std::sqrt(32.0));
                }
                for (int j = 0; j < tokens; j++) {
                    for (int d = 0; d < 32; d++) out[d] += weights[j] / sum * v.host[(head * tokens + j) * 32 + d];
                }
                for (int d = 0; d < 32; d++) suite.near(row * 32 + d, to.host[row * 32 + d], out[d], 1e-3, 1);
            }
        });
    }
    if (suite.wants("rotary")) {
        const int tokens = large ? 8192 : 20, half = large ? 512 : 24;
        Array<float> x(tokens * half * 2, centred);
        const std::vector<float> before = x.host;
        suite.run([&] { rotary<<<blocks(tokens * half, 128), 128>>>(tokens, half, x); }, [&] {
            x.down();
            for (int i = 0; i < std::min(tokens, 64) * half; i++) {
                const int token = i / half, pair = i % half, at = token * 2 * half + pair;
                const double angle = token * std::pow(10000.0, -double(pair) / half);
                suite.near(at, x.host[at], before[at] * std::cos(angle) - before[at + half] * std::sin(angle), 1e-3, 1);
            }
        });
    }
    if (suite.wants("adam")) {
        const int n = large ? 1 << 23 : 1500;
        Array<float> gradients(n, centred), weights(n, [](unsigned i) { return centred(i + 1); });
        Array<float> means(n, [](unsigned i) { return 0.1f * centred(i + 2); }), squares(n, [](unsigned i) { return 0.1f + uniform(i); });
        const std::vector<float> w = weights.host, m = means.host, s = squares.host;
        suite.run([&] { adam<<<blocks(n, 256), 256>>>(n, 10, gradients, weights, means, squares); }, [&] {
            weights.down();
            for (int i = 0; i < n; i++) {
                const double g = gradients.host[i], mean = 0.9 * m[i] + 0.1 * g, square = 0.999 * s[i] + 0.001 * g * g;
                const double step = 0.001 * mean / (1 - std::pow(0.9, 10)) / (std::sqrt(square / (1 - std::pow(0.999, 10))) + 1e-8);
                suite.near(i, weights.host[i], w[i] - step, 1e-5, 0.1);
            }
        });
    }
    if (suite.wants("int8_gemm")) {
        const int n = large ? 1024 : 48;
        Array<int> a(n * n / 4, [](unsigned i) { return int(hash(i)); }), b(n * n / 4, [](unsigned i) { return int(hash(i + 9)); }), c(n * n);
        const dim3 grid(blocks(n, 16), blocks(n, 16));
        suite.run([&] { int8_gemm<<<grid, dim3(16, 16)>>>(n, a, b, c); }, [&] {
            c.down();
            const auto *left = reinterpret_cast<const signed char *>(a.host.data());
            const auto *right = reinterpret_cast<const signed char *>(b.host.data());
            for (int i = 0; i < n * n; i += large ? 101 : 1) {
                int sum = 0;
                for (int k = 0; k < n; k++) sum += left[i / n * n + k] * right[i % n * n + k];
                suite.equal(i, c.host[i], sum);
            }
        });
    }
    if (suite.wants("top_k")) {
        const int count = large ? 8192 : 3, k = 10;
        Array<float> from(count * 256, centred), values(count * k);
        Array<int> places(count * k);
        suite.run([&] { top_k<<<count, 128>>>(k, from, values, places); }, [&] {
            values.down(), places.down();
            for (int row = 0; row < std::min(count, 64); row++) {
                std::vector<float> sorted(&from.host[row * 256], &from.host[row * 256] + 256);
                std::sort(sorted.rbegin(), sorted.rend());
                for (int i = 0; i < k; i++) {
                    suite.equal(row * k + i, values.host[row * k + i], sorted[i]);
                    suite.equal(row * k + i, from.host[row * 256 + places.host[row * k + i]], sorted[i]);
                }
            }
        });
    }
    const int words = large ? 50000 : 60, width = large ? 1024 : 48, tokens = large ? 16384 : 50;
    Array<int> chosen(tokens, [&](unsigned i) { return int(hash(i) % words); });
    if (suite.wants("embedding_gather")) {
        Array<float4> table(size_t(words) * width / 4, [](unsigned i) { return make_float4(i, i + 1, i + 2, i + 3); }), to(size_t(tokens) * width / 4);
        suite.run([&] { embedding_gather<<<tokens, 64>>>(width / 4, chosen, table, to); }, [&] {
            to.down();
            for (size_t i = 0; i < to.host.size(); i++) {
                suite.equal(i, to.host[i].w, table.host[size_t(chosen.host[i / (width / 4)]) * (width / 4) + i % (width / 4)].w);
            }
        });
    }
    if (suite.wants("embedding_scatter")) {
        // Small whole numbers: their sum does not depend on its order.
        Array<float> gradients(size_t(tokens) * width, [](unsigned i) { return float(hash(i) % 16); }), table(size_t(words) * width);
        table.clear();
        suite.run([&] { embedding_scatter<<<tokens, 64>>>(width, chosen, gradients, table); }, [&] {
            std::vector<float> expected(table.host.size(), 0.0f);
            for (size_t i = 0; i < gradients.host.size(); i++) expected[size_t(chosen.host[i / width]) * width + i % width] += gradients.host[i];
            table.down();
            for (size_t i = 0; i < expected.size(); i++) suite.equal(i, table.host[i], expected[i]);
        });
    }
    if (suite.wants("backprop")) {
        const int inputs = large ? 4096 : 50, outputs = large ? 4096 : 33;
        Array<float> errors(outputs, centred), activations(inputs, [](unsigned i) { return centred(i + 7); });
        Array<float> weights(inputs * outputs, [](unsigned i) { return centred(i + 8); }), last(inputs * outputs, [](unsigned i) { return centred(i + 9); });
        const std::vector<float> w = weights.host, l = last.host;
        const dim3 grid(blocks(outputs, 32), blocks(inputs, 4));
        suite.run([&] { backprop<<<grid, dim3(32, 4)>>>(inputs, outputs, errors, activations, weights, last); }, [&] {
            weights.down();
            for (int i = 0; i < inputs * outputs; i++) {
                const double change = 0.3 * errors.host[i % outputs] * double(activations.host[i / outputs]) + 0.3 * l[i];
                suite.near(i, weights.host[i], w[i] + change, 1e-5, 1);
            }
        });
    }
    return suite.finish();
}
