// The kernels of kernels.cu for OpenCL, term for term.
#define BLOCK 256
#define TILE 16

kernel void vector_add(global const float* a, global const float* b, global float* c, int n) {
  int i = get_global_id(0);
  if (i < n) c[i] = a[i] + b[i];
}

kernel void stencil(global const float* in, global float* out, int width, int height) {
  int x = get_global_id(0);
  int y = get_global_id(1);
  if (x > 0 && y > 0 && x < width - 1 && y < height - 1) {
    int at = y * width + x;
    out[at] = 0.2f * (in[at] + in[at - 1] + in[at + 1] + in[at - width] + in[at + width]);
  }
}

float normal(float d) {
  float k = 1.0f / (1.0f + 0.2316419f * fabs(d));
  float sum = k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
  float tail = 0.39894228f * exp(-0.5f * d * d) * sum;
  return d > 0 ? 1.0f - tail : tail;
}

kernel void black_scholes(
    global const float* prices, global const float* strikes, global const float* years, global float* calls, int n) {
  int i = get_global_id(0);
  if (i >= n) return;
  float root = 0.3f * sqrt(years[i]);
  float d1 = (log(prices[i] / strikes[i]) + (0.02f + 0.045f) * years[i]) / root;
  calls[i] = prices[i] * normal(d1) - strikes[i] * exp(-0.02f * years[i]) * normal(d1 - root);
}

kernel void matmul(global const float* a, global const float* b, global float* c, int n) {
  local float left[TILE][TILE];
  local float right[TILE][TILE];
  int across = get_local_id(0), down = get_local_id(1);
  int x = get_global_id(0);
  int y = get_global_id(1);
  float all = 0;
  for (int tile = 0; tile < n; tile += TILE) {
    left[down][across] = a[y * n + tile + across];
    right[down][across] = b[(tile + down) * n + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < TILE; ++k) all += left[down][k] * right[k][across];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[y * n + x] = all;
}

kernel void sum(global const float* in, global float* sums, int n) {
  local float part[BLOCK];
  int thread = get_local_id(0);
  int i = get_global_id(0);
  part[thread] = i < n ? in[i] : 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_ = BLOCK / 2; half_ > 0; half_ /= 2) {
    if (thread < half_) part[thread] += part[thread + half_];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (thread == 0) sums[get_group_id(0)] = part[0];
}

kernel void bodies(global const float* at, global float* pull, int n) {
  local float near[BLOCK * 4];
  int thread = get_local_id(0);
  int i = get_global_id(0);
  float x = at[4 * i], y = at[4 * i + 1], z = at[4 * i + 2];
  float fx = 0, fy = 0, fz = 0;
  for (int from = 0; from < n; from += BLOCK) {
    for (int k = 0; k < 4; ++k) near[4 * thread + k] = at[4 * (from + thread) + k];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = 0; j < BLOCK; ++j) {
      float dx = near[4 * j] - x, dy = near[4 * j + 1] - y, dz = near[4 * j + 2] - z;
      float square = dx * dx + dy * dy + dz * dz + 0.01f;
      float inverse = 1.0f / sqrt(square);
      float force = near[4 * j + 3] * inverse * inverse * inverse;
      fx += dx * force;
      fy += dy * force;
      fz += dz * force;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  pull[3 * i] = fx;
  pull[3 * i + 1] = fy;
  pull[3 * i + 2] = fz;
}
