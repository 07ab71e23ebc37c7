// Simulation, dynamic programming and finance: the kernels, each checked against the CPU.
// nvcc: -Xcompiler -O2
#include "kernels.h"

__global__ void nbody(int n, const float4 *bodies, float3 *forces) {
    __shared__ float4 tile[128];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float4 own = bodies[min(i, n - 1)];
    float3 force = make_float3(0, 0, 0);
    for (int begin = 0; begin < n; begin += 128) {
        tile[threadIdx.x] = begin + threadIdx.x < n ? bodies[begin + threadIdx.x] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (int j = 0; j < 128; j++) {
            const float dx = tile[j].x - own.x, dy = tile[j].y - own.y, dz = tile[j].z - own.z;
            const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), pull = tile[j].w * inverse * inverse * inverse;
            force.x += dx * pull, force.y += dy * pull, force.z += dz * pull;
        }
        __syncthreads();
    }
    if (i < n) forces[i] = force;
}

__global__ void hotspot(int n, const float *power, const float *from, float *to) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    const float own = from[y * n + x];
    const float west = from[y * n + max(x - 1, 0)], east = from[y * n + min(x + 1, n - 1)];
    const float north = from[max(y - 1, 0) * n + x], south = from[min(y + 1, n - 1) * n + x];
    to[y * n + x] = own + 0.1f * (power[y * n + x] + (south + north - 2 * own) + (east + west - 2 * own) + 0.05f * (80.0f - own));
}

__global__ void stencil_3d(int n, const float *from, float *to) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    float below = from[y * n + x], own = from[(n + y) * n + x];
    for (int z = 1; z < n - 1; z++) {
        const float above = from[((z + 1) * n + y) * n + x], *at = from + (z * n + y) * n + x;
        to[(z * n + y) * n + x] = 0.4f * own + 0.1f * (below + above + at[-1] + at[1] + at[-n] + at[n]);
        below = own, own = above;
    }
}

// Several rows of cheapest ways through a grid at a time, a block for a strip and its halo.
__global__ void pathfinder(int columns, int rows, const int *costs, const int *from, int *to) {
    __shared__ int best[256], next[256];
    const int inner = 256 - 2 * rows, x = blockIdx.x * inner - rows + threadIdx.x;
    const bool inside = x >= 0 && x < columns;
    best[threadIdx.x] = inside ? from[x] : 1 << 29;
    __syncthreads();
    for (int row = 0; row < rows; row++) {
        if (threadIdx.x > 0 && threadIdx.x < 255) {
            const int least = min(best[threadIdx.x], min(best[threadIdx.x - 1], best[threadIdx.x + 1]));
            next[threadIdx.x] = inside ? least + costs[row * columns + x] : 1 << 29;
        } else {
            next[threadIdx.x] = 1 << 29;
        }
        __syncthreads();
        best[threadIdx.x] = next[threadIdx.x];
        __syncthreads();
    }
    if (inside && threadIdx.x >= rows && threadIdx.x < 256 - rows) to[x] = best[threadIdx.x];
}

// A block aligns a pair of short sequences, diagonal by diagonal.
__global__ void needleman_wunsch(int length, const unsigned char *a, const unsigned char *b, int *scores) {
    __shared__ int diagonals[3][130];
    a += blockIdx.x * length, b += blockIdx.x * length;
    int *older = diagonals[0], *old = diagonals[1], *own = diagonals[2];
    for (int diagonal = 0; diagonal <= 2 * length; diagonal++) {
        for (int i = threadIdx.x; i <= length; i += blockDim.x) {
            const int j = diagonal - i;
            if (j < 0 || j > length) continue;
            if (i == 0 || j == 0) own[i] = -2 * (i + j);
            else own[i] = max(older[i - 1] + (a[i - 1] == b[j - 1] ? 3 : -1), max(old[i - 1], old[i]) - 2);
        }
        __syncthreads();
        int *const spare = older;
        older = old, old = own, own = spare;
    }
    if (threadIdx.x == 0) scores[blockIdx.x] = old[length];
}

__device__ float normal(float x) {
    const float k = 1.0f / (1.0f + 0.2316419f * fabsf(x));
    const float tail = 0.3989422804f * expf(-0.5f * x * x) * k *
                       (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
    return x > 0 ? 1.0f - tail : tail;
}

__global__ void black_scholes(int n, const float *prices, const float *strikes, const float *years, float *calls, float *puts) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const float root = sqrtf(years[i]), d1 = (logf(prices[i] / strikes[i]) + (0.02f + 0.045f) * years[i]) / (0.3f * root);
        const float d2 = d1 - 0.3f * root, discounted = strikes[i] * expf(-0.02f * years[i]);
        calls[i] = prices[i] * normal(d1) - discounted * normal(d2);
        puts[i] = discounted * normal(-d2) - prices[i] * normal(-d1);
    }
}

// Paths of a price, two random numbers a step.
__global__ void monte_carlo(int steps, int paths, float *ends) {
    const int path = blockIdx.x * blockDim.x + threadIdx.x;
    if (path >= paths) return;
    unsigned state = hash(path + 1);
    float price = 1.0f;
    for (int step = 0; step < steps; step++) {
        state = hash(state);
        const float up = static_cast<float>(state >> 8) * (1.0f / 16777216.0f);
        price *= up < 0.5f ? 0.99f : 1.01f;
    }
    ends[path] = price;
}

__global__ void mandelbrot(int side, int most, int *counts) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= side || y >= side) return;
    // Products that do not become fused, as on the CPU.
    const float cx = 3.0f * x / side - 2.25f, cy = 3.0f * y / side - 1.5f;
    float zx = 0, zy = 0;
    int count = 0;
    while (count < most && __fadd_rn(__fmul_rn(zx, zx), __fmul_rn(zy, zy)) < 4.0f) {
        const float next = __fadd_rn(__fsub_rn(__fmul_rn(zx, zx), __fmul_rn(zy, zy)), cx);
        zy = __fadd_rn(__fmul_rn(2.0f * zx, zy), cy), zx = next, count++;
    }
    counts[y * side + x] = count;
}

// The electric field of a wave, from the magnetic one.
__global__ void fdtd(int n, const float *hz, float *ex, float *ey) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    if (y > 0) ex[y * n + x] -= 0.5f * (hz[y * n + x] - hz[(y - 1) * n + x]);
    if (x > 0) ey[y * n + x] -= 0.5f * (hz[y * n + x] - hz[y * n + x - 1]);
}

// A lattice gas of nine directions: collide, and move to the neighbours.
__global__ void lattice_boltzmann(int n, const float *from, float *to) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    float f[9], density = 0, ux = 0, uy = 0;
#pragma unroll
    for (int d = 0; d < 9; d++) {
        const int dx = d % 3 - 1, dy = d / 3 - 1;
        f[d] = from[(d * n + y) * n + x];
        density += f[d], ux += dx * f[d], uy += dy * f[d];
    }
    ux /= density, uy /= density;
#pragma unroll
    for (int d = 0; d < 9; d++) {
        const int dx = d % 3 - 1, dy = d / 3 - 1;
        const float weight = (dx == 0 ? 2.0f / 3 : 1.0f / 6) * (dy == 0 ? 2.0f / 3 : 1.0f / 6), along = dx * ux + dy * uy;
        const float rest = weight * density * (1 + 3 * along + 4.5f * along * along - 1.5f * (ux * ux + uy * uy));
        const int tx = (x + dx + n) % n, ty = (y + dy + n) % n;
        to[(d * n + ty) * n + tx] = f[d] + 0.6f * (rest - f[d]);
    }
}

// Molecules in boxes: each against those of its own box and the next.
__global__ void molecular_dynamics(int boxes, const double *positions, double *energies) {
    const int box = blockIdx.x, i = threadIdx.x;
    const double own = positions[box * 32 + i];
    double energy = 0;
    for (int other = box; other <= min(box + 1, boxes - 1); other++) {
        for (int j = 0; j < 32; j++) {
            const double distance = positions[other * 32 + j] - own, square = distance * distance + 0.5, sixth = 1 / (square * square * square);
            energy += sixth * sixth - sixth;
        }
    }
    energies[box * 32 + i] = energy;
}

int main(int argc, char **argv) {
    Suite suite("kernels_hpc", argc, argv);
    const bool large = suite.large;
    if (suite.wants("nbody")) {
        const int n = large ? 16384 : 200;
        Array<float4> bodies(n, [](unsigned i) { return make_float4(uniform(i), uniform(i + 1 << 20), uniform(i + 2 << 20), 1 + uniform(i + 3)); });
        Array<float3> forces(n);
        suite.run([&] { nbody<<<blocks(n, 128), 128>>>(n, bodies, forces); }, [&] {
            forces.down();
            for (int i = 0; i < n; i += large ? 501 : 1) {
                double x = 0, size = 0;
                for (int j = 0; j < n; j++) {
                    const double dx = double(bodies.host[j].x) - bodies.host[i].x, dy = double(bodies.host[j].y) - bodies.host[i].y;
                    const double dz = double(bodies.host[j].z) - bodies.host[i].z;
                    const double pull = bodies.host[j].w * std::pow(dx * dx + dy * dy + dz * dz + 0.01f, -1.5);
                    x += dx * pull, size += std::fabs(dx * pull);
                }
                suite.near(i, forces.host[i].x, x, 1e-4, size);
            }
        });
    }
    {
        const int n = large ? 4096 : 60;
        Array<float> a(n * n, [](unsigned i) { return uniform(i); }), b(n * n, [](unsigned i) { return 50 + uniform(i + 5); }), c(n * n);
        const dim3 grid(blocks(n, 32), blocks(n, 8)), block(32, 8);
        if (suite.wants("hotspot")) {
            suite.run([&] { hotspot<<<grid, block>>>(n, a, b, c); }, [&] {
                c.down();
                const auto at = [&](int x, int y) { return double(b.host[std::clamp(y, 0, n - 1) * n + std::clamp(x, 0, n - 1)]); };
                for (int i = 0; i < n * n; i++) {
                    const int x = i % n, y = i / n;
                    const double around = at(x - 1, y) + at(x + 1, y) + at(x, y - 1) + at(x, y + 1) - 4 * at(x, y);
                    suite.near(i, c.host[i], at(x, y) + 0.1 * (a.host[i] + around + 0.05 * (80 - at(x, y))), 1e-5);
                }
            });
        }
        if (suite.wants("fdtd")) {
            Array<float> ex(n * n, [](unsigned i) { return uniform(i + 6); }), ey(n * n, [](unsigned i) { return uniform(i + 7); });
            const std::vector<float> before = ey.host;
            suite.run([&] { fdtd<<<grid, block>>>(n, a, ex, ey); }, [&] {
                ey.down();
                for (int i = 0; i < n * n; i++) {
                    const double change = i % n > 0 ? 0.5 * (double(a.host[i]) - a.host[i - 1]) : 0;
                    suite.near(i, ey.host[i], before[i] - change, 1e-5, 1);
                }
            });
        }
    }
    if (suite.wants("stencil_3d")) {
        const int n = large ? 320 : 20;
        Array<float> from(n * n * n, [](unsigned i) { return uniform(i); }), to(n * n * n);
        const dim3 grid(blocks(n, 32), blocks(n, 4));
        suite.run([&] { stencil_3d<<<grid, dim3(32, 4)>>>(n, from, to); }, [&] {
            to.down();
            for (int z = 1; z < n - 1; z++) {
                for (int y = 1; y < n - 1; y++) {
                    for (int x = 1; x < n - 1; x++) {
                        const int i = (z * n + y) * n + x;
                        const float *at = &from.host[i];
                        const double around = double(at[-1]) + at[1] + at[-n] + at[n] + at[-n * n] + at[n * n];
                        suite.near(i, to.host[i], 0.4 * at[0] + 0.1 * around, 1e-5, 1);
                    }
                }
            }
        });
    }
    if (suite.wants("pathfinder")) {
        const int columns = large ? 1 << 20 : 1000, rows = 16, inner = 256 - 2 * rows;
        Array<int> costs(columns * rows, [](unsigned i) { return int(hash(i) % 10); }), from(columns, [](unsigned i) { return int(hash(i + 1) % 10); }), to(columns);
        suite.run([&] { pathfinder<<<blocks(columns, inner), 256>>>(columns, rows, costs, from, to); }, [&] {
            std::vector<int> best = from.host, next(columns);
            for (int row = 0; row < rows; row++) {
                for (int x = 0; x < columns; x++) {
                    int least = best[x];
                    if (x > 0) least = std::min(least, best[x - 1]);
                    if (x + 1 < columns) least = std::min(least, best[x + 1]);
                    next[x] = least + costs.host[row * columns + x];
                }
                best.swap(next);
            }
            to.down();
            for (int x = 0; x < columns; x++) suite.equal(x, to.host[x], best[x]);
        });
    }
    if (suite.wants("needleman_wunsch")) {
        const int pairs = large ? 16384 : 4, length = large ? 128 : 40;
        Array<unsigned char> a(size_t(pairs) * length, [](unsigned i) { return static_cast<unsigned char>(hash(i) % 4); });
        Array<unsigned char> b(size_t(pairs) * length, [](unsigned i) { return static_cast<unsigned char>(hash(i + (i % 9 == 0)) % 4); });
        Array<int> scores(pairs);
        suite.run([&] { needleman_wunsch<<<pairs, 64>>>(length, a, b, scores); }, [&] {
            scores.down();
            for (int pair = 0; pair < std::min(pairs, 32); pair++) {
                std::vector<std::vector<int>> best(length + 1, std::vector<int>(length + 1));
                for (int i = 0; i <= length; i++) {
                    for (int j = 0; j <= length; j++) {
                        if (i == 0 || j == 0) best[i][j] = -2 * (i + j);
                        else {
                            const bool same = a.host[pair * length + i - 1] == b.host[pair * length + j - 1];
                            best[i][j] = std::max(best[i - 1][j - 1] + (same ? 3 : -1), std::max(best[i - 1][j], best[i][j - 1]) - 2);
                        }
                    }
                }
                suite.equal(pair, scores.host[pair], best[length][length]);
            }
        });
    }
    if (suite.wants("black_scholes")) {
        const int n = large ? 1 << 23 : 800;
        Array<float> prices(n, [](unsigned i) { return 5 + 25 * uniform(i); }), strikes(n, [](unsigned i) { return 1 + 99 * uniform(i + 1); });
        Array<float> years(n, [](unsigned i) { return 0.25f + 9.75f * uniform(i + 2); }), calls(n), puts(n);
        suite.run([&] { black_scholes<<<large ? 1056 : 4, 128>>>(n, prices, strikes, years, calls, puts); }, [&] {
            calls.down(), puts.down();
            for (int i = 0; i < n; i += large ? 1009 : 1) {
                const double s = prices.host[i], x = strikes.host[i], t = years.host[i];
                const double d1 = (std::log(s / x) + 0.065 * t) / (0.3 * std::sqrt(t)), d2 = d1 - 0.3 * std::sqrt(t);
                const auto phi = [](double v) { return 0.5 * std::erfc(-v / std::sqrt(2.0)); };
                suite.near(i, calls.host[i], s * phi(d1) - x * std::exp(-0.02 * t) * phi(d2), 1e-4, 10);
                suite.near(i, puts.host[i], x * std::exp(-0.02 * t) * phi(-d2) - s * phi(-d1), 1e-4, 10);
            }
        });
    }
    if (suite.wants("monte_carlo")) {
        const int paths = large ? 1 << 20 : 500, steps = large ? 256 : 40;
        Array<float> ends(paths);
        suite.run([&] { monte_carlo<<<blocks(paths, 128), 128>>>(steps, paths, ends); }, [&] {
            ends.down();
            for (int path = 0; path < paths; path += large ? 1009 : 1) {
                unsigned state = hash(path + 1);
                double price = 1;
                for (int step = 0; step < steps; step++) {
                    state = hash(state);
                    price *= static_cast<float>(state >> 8) * (1.0f / 16777216.0f) < 0.5f ? 0.99f : 1.01f;
                }
                suite.near(path, ends.host[path], price, 1e-4);
            }
        });
    }
    if (suite.wants("mandelbrot")) {
        const int side = large ? 2048 : 40, most = large ? 256 : 50;
        Array<int> counts(side * side);
        suite.run([&] { mandelbrot<<<dim3(blocks(side, 16), blocks(side, 8)), dim3(16, 8)>>>(side, most, counts); }, [&] {
            counts.down();
            int different = 0;
            for (int i = 0; i < side * side; i++) {
                const float cx = 3.0f * (i % side) / side - 2.25f, cy = 3.0f * (i / side) / side - 1.5f;
                volatile float zx = 0, zy = 0;
                int count = 0;
                while (count < most) {
                    const volatile float xx = zx * zx, yy = zy * zy;
                    if (!(xx + yy < 4.0f)) break;
                    const volatile float difference = xx - yy, product = 2.0f * zx * zy;
                    zx = difference + cx, zy = product + cy, count++;
                }
                different += counts.host[i] != count;
            }
            // Where a point starts may be rounded in another way.
            if (different > side * side / 100) suite.wrong(0, different, 0);
        });
    }
    if (suite.wants("lattice_boltzmann")) {
        const int n = large ? 1024 : 30;
        Array<float> from(9 * n * n, [](unsigned i) { return 0.1f + 0.01f * uniform(i); }), to(9 * n * n);
        suite.run([&] { lattice_boltzmann<<<dim3(blocks(n, 32), blocks(n, 4)), dim3(32, 4)>>>(n, from, to); }, [&] {
            to.down();
            for (int cell = 0; cell < n * n; cell += large ? 101 : 1) {
                double density = 0, ux = 0, uy = 0;
                for (int d = 0; d < 9; d++) {
                    const double f = from.host[d * n * n + cell];
                    density += f, ux += (d % 3 - 1) * f, uy += (d / 3 - 1) * f;
                }
                ux /= density, uy /= density;
                for (int d = 0; d < 9; d++) {
                    const int dx = d % 3 - 1, dy = d / 3 - 1, x = (cell % n + dx + n) % n, y = (cell / n + dy + n) % n;
                    const double weight = (dx == 0 ? 2.0 / 3 : 1.0 / 6) * (dy == 0 ? 2.0 / 3 : 1.0 / 6), along = dx * ux + dy * uy;
                    const double rest = weight * density * (1 + 3 * along + 4.5 * along * along - 1.5 * (ux * ux + uy * uy));
                    const double f = from.host[d * n * n + cell];
                    suite.near((d * n + y) * n + x, to.host[(d * n + y) * n + x], f + 0.6 * (rest - f), 1e-4, 0.1);
                }
            }
        });
    }
    if (suite.wants("molecular_dynamics")) {
        const int boxes = large ? 65536 : 9;
        Array<double> positions(boxes * 32, [](unsigned i) { return i / 32 + double(uniform(i)); }), energies(boxes * 32);
        suite.run([&] { molecular_dynamics<<<boxes, 32>>>(boxes, positions, energies); }, [&] {
            energies.down();
            for (int i = 0; i < boxes * 32; i += large ? 1009 : 1) {
                double energy = 0;
                for (int j = i / 32 * 32; j < std::min(i / 32 + 2, boxes) * 32; j++) {
                    const double d = positions.host[j] - positions.host[i], sixth = std::pow(d * d + 0.5, -3);
                    energy += sixth * sixth - sixth;
                }
                suite.near(i, energies.host[i], energy, 1e-9, 1);
            }
        });
    }
    return suite.finish();
}
