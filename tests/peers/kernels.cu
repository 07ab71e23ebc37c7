// Seven kernels, each timed: built by nvcc for the software GPU, and by a C++ compiler for HIP-CPU (-DPEER_HIP).
// Prints a line for each, `NAME SECONDS`: the least of several runs, launch and wait included, after one that is not counted.
// What each computes is checked against the host; kernels.cl has the same kernels for OpenCL.
#ifdef PEER_HIP
#include <hip/hip_runtime.h>
#define cudaMalloc hipMalloc
#define cudaMemcpy hipMemcpy
#define cudaMemcpyHostToDevice hipMemcpyHostToDevice
#define cudaMemcpyDeviceToHost hipMemcpyDeviceToHost
#define cudaDeviceSynchronize hipDeviceSynchronize
#define LAUNCH(kernel, grid, block, ...) hipLaunchKernelGGL(kernel, grid, block, 0, nullptr, __VA_ARGS__)
#else
#define LAUNCH(kernel, grid, block, ...) kernel<<<grid, block>>>(__VA_ARGS__)
#endif
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int BLOCK = 256;
constexpr int TILE = 16;
constexpr int TURNS = 5;

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void stencil(const float* in, float* out, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x > 0 && y > 0 && x < width - 1 && y < height - 1) {
    int at = y * width + x;
    out[at] = 0.2f * (in[at] + in[at - 1] + in[at + 1] + in[at - width] + in[at + width]);
  }
}

__device__ __host__ inline float normal(float d) {
  float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
  float sum = k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
  float tail = 0.39894228f * expf(-0.5f * d * d) * sum;
  return d > 0 ? 1.0f - tail : tail;
}

__device__ __host__ inline float call_price(float price, float strike, float years) {
  float root = 0.3f * sqrtf(years);
  float d1 = (logf(price / strike) + (0.02f + 0.045f) * years) / root;
  return price * normal(d1) - strike * expf(-0.02f * years) * normal(d1 - root);
}

__global__ void black_scholes(const float* prices, const float* strikes, const float* years, float* calls, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) calls[i] = call_price(prices[i], strikes[i], years[i]);
}

__global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float left[TILE][TILE];
  __shared__ float right[TILE][TILE];
  int x = blockIdx.x * TILE + threadIdx.x;
  int y = blockIdx.y * TILE + threadIdx.y;
  float sum = 0;
  for (int tile = 0; tile < n; tile += TILE) {
    left[threadIdx.y][threadIdx.x] = a[y * n + tile + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + x];
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
    __syncthreads();
  }
  c[y * n + x] = sum;
}

__global__ void sum(const float* in, float* sums, int n) {
  __shared__ float part[BLOCK];
  int i = blockIdx.x * BLOCK + threadIdx.x;
  part[threadIdx.x] = i < n ? in[i] : 0;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

// Three floats and a mass for each body.
__global__ void bodies(const float* at, float* pull, int n) {
  __shared__ float near[BLOCK * 4];
  int i = blockIdx.x * BLOCK + threadIdx.x;
  float x = at[4 * i], y = at[4 * i + 1], z = at[4 * i + 2];
  float fx = 0, fy = 0, fz = 0;
  for (int from = 0; from < n; from += BLOCK) {
    for (int k = 0; k < 4; ++k) near[4 * threadIdx.x + k] = at[4 * (from + threadIdx.x) + k];
    __syncthreads();
    for (int j = 0; j < BLOCK; ++j) {
      float dx = near[4 * j] - x, dy = near[4 * j + 1] - y, dz = near[4 * j + 2] - z;
      float square = dx * dx + dy * dy + dz * dz + 0.01f;
      float inverse = 1.0f / sqrtf(square);
      float force = near[4 * j + 3] * inverse * inverse * inverse;
      fx += dx * force;
      fy += dy * force;
      fz += dz * force;
    }
    __syncthreads();
  }
  pull[3 * i] = fx;
  pull[3 * i + 1] = fy;
  pull[3 * i + 2] = fz;
}

static float* upload(const std::vector<float>& values) {
  float* memory = nullptr;
  cudaMalloc((void**)&memory, values.size() * sizeof(float));
  cudaMemcpy(memory, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice);
  return memory;
}

static std::vector<float> download(const float* memory, size_t count) {
  std::vector<float> values(count);
  cudaMemcpy(values.data(), memory, count * sizeof(float), cudaMemcpyDeviceToHost);
  return values;
}

// The same numbers as compare.py gives to OpenCL: a linear congruence, between 0.5 and 1.5.
static std::vector<float> numbers(size_t count, unsigned seed) {
  std::vector<float> values(count);
  for (auto& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = 0.5f + float(seed >> 8) / float(1 << 24);
  }
  return values;
}

static void expect(const char* name, double is, double should) {
  if (!(fabs(is - should) <= 1e-3 * fabs(should) + 1e-6)) {
    printf("%s computed %g in place of %g\n", name, is, should);
    exit(1);
  }
}

template <typename Launch>
static void timed(const char* name, Launch launch) {
  double least = 1e9;
  for (int turn = 0; turn <= TURNS; ++turn) {
    auto begun = std::chrono::steady_clock::now();
    launch();
    cudaDeviceSynchronize();
    double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (turn > 0 && taken < least) least = taken;
  }
  printf("%s %.9f\n", name, least);
  fflush(stdout);
}

int main() {
  for (int n : {1 << 20, 1 << 24}) {
    auto a = numbers(n, 1), b = numbers(n, 2);
    float *da = upload(a), *db = upload(b), *dc = upload(a);
    timed(n == 1 << 20 ? "vector_add_1M" : "vector_add_16M", [&] { LAUNCH(vector_add, n / BLOCK, BLOCK, da, db, dc, n); });
    auto c = download(dc, n);
    for (int i = 0; i < n; i += 997) expect("vector_add", c[i], a[i] + b[i]);
  }
  {
    int n = 2048;
    auto in = numbers(n * n, 3);
    float *din = upload(in), *dout = upload(in);
    timed("stencil_2048", [&] { LAUNCH(stencil, dim3(n / 32, n / 8), dim3(32, 8), din, dout, n, n); });
    auto out = download(dout, n * n);
    for (int at = n + 1; at < n * n - n - 1; at += n + 3)
      if (at % n > 0 && at % n < n - 1)
        expect("stencil", out[at], 0.2 * (in[at] + in[at - 1] + in[at + 1] + in[at - n] + in[at + n]));
  }
  {
    int n = 1 << 20;
    auto prices = numbers(n, 4), strikes = numbers(n, 5), years = numbers(n, 6);
    float *dp = upload(prices), *ds = upload(strikes), *dy = upload(years), *dc = upload(prices);
    timed("black_scholes_1M", [&] { LAUNCH(black_scholes, n / BLOCK, BLOCK, dp, ds, dy, dc, n); });
    auto calls = download(dc, n);
    for (int i = 0; i < n; i += 997)
      if (call_price(prices[i], strikes[i], years[i]) > 0.05f)
        expect("black_scholes", calls[i], call_price(prices[i], strikes[i], years[i]));
  }
  {
    int n = 512;
    auto a = numbers(n * n, 7), b = numbers(n * n, 8);
    float *da = upload(a), *db = upload(b), *dc = upload(a);
    timed("matmul_512", [&] { LAUNCH(matmul, dim3(n / TILE, n / TILE), dim3(TILE, TILE), da, db, dc, n); });
    auto c = download(dc, n * n);
    for (int at = 0; at < n * n; at += 9973) {
      double all = 0;
      for (int k = 0; k < n; ++k) all += double(a[at / n * n + k]) * b[k * n + at % n];
      expect("matmul", c[at], all);
    }
  }
  {
    int n = 1 << 22;
    auto in = numbers(n, 9);
    float *din = upload(in), *dsums = upload(std::vector<float>(n / BLOCK));
    timed("sum_4M", [&] { LAUNCH(sum, n / BLOCK, BLOCK, din, dsums, n); });
    double all = 0, should = 0;
    for (float part : download(dsums, n / BLOCK)) all += part;
    for (float value : in) should += value;
    expect("sum", all, should);
  }
  {
    int n = 4096;
    auto at = numbers(4 * n, 10);
    float *dat = upload(at), *dpull = upload(std::vector<float>(3 * n));
    timed("bodies_4096", [&] { LAUNCH(bodies, n / BLOCK, BLOCK, dat, dpull, n); });
    auto pull = download(dpull, 3 * n);
    for (int i = 0; i < n; i += 1021) {
      double fx = 0, scale = 0;
      for (int j = 0; j < n; ++j) {
        double dx = at[4 * j] - at[4 * i], dy = at[4 * j + 1] - at[4 * i + 1], dz = at[4 * j + 2] - at[4 * i + 2];
        double square = dx * dx + dy * dy + dz * dz + 0.01;
        fx += dx * at[4 * j + 3] / (square * sqrt(square));
        scale += fabs(dx) * at[4 * j + 3] / (square * sqrt(square));
      }
      // Of sums that nearly cancel, what counts is how large their terms were.
      expect("bodies", pull[3 * i] + scale, fx + scale);
    }
  }
}
