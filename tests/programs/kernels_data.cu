// Sorting, counting, hashing, graphs and sparse matrices: the kernels, each checked against the CPU.
// nvcc: -Xcompiler -O2
#include "kernels.h"

#include <numeric>

__global__ void reduce(int n, const int *from, long long *to) {
    long long sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += from[i];
    for (int delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(~0u, sum, delta);
    if (threadIdx.x % 32 == 0) atomicAdd(reinterpret_cast<unsigned long long *>(to), static_cast<unsigned long long>(sum));
}

// A block's inclusive prefix sums, by warps.
__device__ int scan_block(int value, int *warps) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int delta = 1; delta < 32; delta *= 2) {
        const int below = __shfl_up_sync(~0u, value, delta);
        if (lane >= delta) value += below;
    }
    if (lane == 31) warps[warp] = value;
    __syncthreads();
    if (warp == 0) {
        int sum = lane < blockDim.x / 32 ? warps[lane] : 0;
        for (int delta = 1; delta < 32; delta *= 2) {
            const int below = __shfl_up_sync(~0u, sum, delta);
            if (lane >= delta) sum += below;
        }
        warps[lane] = sum;
    }
    __syncthreads();
    return value + (warp > 0 ? warps[warp - 1] : 0);
}

__global__ void scan_warps(int n, const int *from, int *to, int *totals) {
    __shared__ int warps[32];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int sum = scan_block(i < n ? from[i] : 0, warps);
    if (i < n) to[i] = sum;
    if (threadIdx.x == blockDim.x - 1) totals[blockIdx.x] = sum;
}

// Blelloch's scan: up and down a tree in shared memory, 256 elements a block.
__global__ void scan_tree(const int *from, int *to) {
    __shared__ int tree[256];
    const int i = threadIdx.x;
    tree[2 * i] = from[blockIdx.x * 256 + 2 * i], tree[2 * i + 1] = from[blockIdx.x * 256 + 2 * i + 1];
    int offset = 1;
    for (int d = 128; d > 0; d /= 2, offset *= 2) {
        __syncthreads();
        if (i < d) tree[offset * (2 * i + 2) - 1] += tree[offset * (2 * i + 1) - 1];
    }
    if (i == 0) tree[255] = 0;
    for (int d = 1; d < 256; d *= 2) {
        offset /= 2;
        __syncthreads();
        if (i < d) {
            const int low = offset * (2 * i + 1) - 1, high = offset * (2 * i + 2) - 1, kept = tree[low];
            tree[low] = tree[high];
            tree[high] += kept;
        }
    }
    __syncthreads();
    to[blockIdx.x * 256 + 2 * i] = tree[2 * i], to[blockIdx.x * 256 + 2 * i + 1] = tree[2 * i + 1];
}

__global__ void histogram_global(int n, const unsigned *from, unsigned *bins) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[from[i] % 256], 1u);
}

__global__ void histogram_shared(int n, const uchar4 *from, unsigned *bins) {
    __shared__ unsigned own[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const uchar4 bytes = from[i];
        atomicAdd(&own[bytes.x], 1u), atomicAdd(&own[bytes.y], 1u);
        atomicAdd(&own[bytes.z], 1u), atomicAdd(&own[bytes.w], 1u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], own[i]);
}

// A block sorts 256 keys by four bits at a time, sixteen times two.
__global__ void radix_sort(const unsigned *from, unsigned *to) {
    __shared__ unsigned keys[256];
    __shared__ int warps[32], ones;
    const int i = threadIdx.x;
    keys[i] = from[blockIdx.x * 256 + i];
    for (int bit = 0; bit < 32; bit++) {
        __syncthreads();
        const unsigned key = keys[i];
        const int one = key >> bit & 1, before = scan_block(one, warps) - one;
        if (i == 255) ones = before + one;
        __syncthreads();
        keys[one ? 256 - ones + before : i - before] = key;
    }
    __syncthreads();
    to[blockIdx.x * 256 + i] = keys[i];
}

// One pass over runs of `run` sorted keys: each key finds its place in the merged run by search in the other.
__global__ void merge_sort(int n, int run, const unsigned *from, unsigned *to) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int pair = i / (2 * run) * (2 * run), other = i < pair + run ? pair + run : pair;
    const bool first = i < pair + run;
    const unsigned key = from[i];
    int low = min(other, n), high = min(other + run, n);
    const int begin = low;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (first ? from[middle] < key : from[middle] <= key) low = middle + 1;
        else high = middle;
    }
    to[pair + (first ? i - pair : i - pair - run) + (low - begin)] = key;
}

// One compare-exchange step of a sorting network over all of memory.
__global__ void bitonic_step(int n, int size, int stride, unsigned *keys) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ stride;
    if (i >= n || other <= i) return;
    const unsigned a = keys[i], b = keys[other];
    if ((a > b) == ((i & size) == 0)) keys[i] = b, keys[other] = a;
}

// The elements that are odd, together; each warp takes its room at once.
__global__ void compact(int n, const unsigned *from, unsigned *to, unsigned *count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const bool keep = i < n && from[i] % 2 == 1;
    const unsigned who = __ballot_sync(~0u, keep), lane = threadIdx.x % 32;
    unsigned start = 0;
    if (lane == 0 && who != 0) start = atomicAdd(count, __popc(who));
    start = __shfl_sync(~0u, start, 0);
    if (keep) to[start + __popc(who & ((1u << lane) - 1))] = from[i];
}

// A checksum for each row of bytes, by a table in shared memory.
__global__ void crc32(int rows, int bytes, const unsigned char *from, unsigned *to) {
    __shared__ unsigned table[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        unsigned word = i;
        for (int bit = 0; bit < 8; bit++) word = word & 1 ? 0xedb88320u ^ word >> 1 : word >> 1;
        table[i] = word;
    }
    __syncthreads();
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    unsigned crc = ~0u;
    for (int i = 0; i < bytes; i++) crc = table[(crc ^ from[row * bytes + i]) & 255] ^ crc >> 8;
    to[row] = ~crc;
}

__global__ void hash_build(int n, const unsigned *keys, unsigned mask, unsigned long long *table) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned long long entry = static_cast<unsigned long long>(keys[i]) << 32 | static_cast<unsigned>(i + 1);
    for (unsigned slot = hash(keys[i]) & mask;; slot = (slot + 1) & mask) {
        const unsigned long long found = atomicCAS(&table[slot], 0ull, entry);
        if (found == 0 || found == entry) return;
    }
}

__global__ void hash_probe(int n, const unsigned *keys, unsigned mask, const unsigned long long *table, int *matches) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int match = -1;
    for (unsigned slot = hash(keys[i]) & mask;; slot = (slot + 1) & mask) {
        const unsigned long long entry = table[slot];
        if (entry == 0) break;
        if (static_cast<unsigned>(entry >> 32) == keys[i]) {
            match = static_cast<int>(entry & 0xffffffffu) - 1;
            break;
        }
    }
    matches[i] = match;
}

// One level of a breadth-first search; whoever reaches a node writes the same, while others look.
__global__ void bfs(int n, int level, const int *starts, const int *edges, volatile int *levels, int *found) {
    const int node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= n || levels[node] != level) return;
    for (int i = starts[node]; i < starts[node + 1]; i++) {
        if (levels[edges[i]] == -1) levels[edges[i]] = level + 1, *found = 1;
    }
}

// One step of page ranks, pulled over incoming edges.
__global__ void page_rank(int n, const int *starts, const int *edges, const float *from, const int *degrees, float *to) {
    const int node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= n) return;
    float sum = 0;
    for (int i = starts[node]; i < starts[node + 1]; i++) sum += from[edges[i]] / degrees[edges[i]];
    to[node] = 0.15f / n + 0.85f * sum;
}

// A warp for each row.
__global__ void spmv_vector(int n, const int *starts, const int *columns, const float *values, const float *x, float *y) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= n) return;
    float sum = 0;
    for (int i = starts[row] + lane; i < starts[row + 1]; i += 32) sum += values[i] * x[columns[i]];
    for (int delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(~0u, sum, delta);
    if (lane == 0) y[row] = sum;
}

__global__ void sparse_transpose(int n, const int *starts, const int *columns, const float *values, int *next, int *rows, float *moved) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    for (int i = starts[row]; i < starts[row + 1]; i++) {
        const int to = atomicAdd(&next[columns[i]], 1);
        rows[to] = row;
        moved[to] = values[i];
    }
}

// Every point to its nearest centre, and the sums of the new ones.
__global__ void k_means(int n, int k, const float2 *points, const float2 *centres, int *nearest, float *sums) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float least = INFINITY;
    int chosen = 0;
    for (int c = 0; c < k; c++) {
        const float dx = points[i].x - centres[c].x, dy = points[i].y - centres[c].y, distance = dx * dx + dy * dy;
        if (distance < least) least = distance, chosen = c;
    }
    nearest[i] = chosen;
    atomicAdd(&sums[chosen * 3], points[i].x), atomicAdd(&sums[chosen * 3 + 1], points[i].y);
    atomicAdd(&sums[chosen * 3 + 2], 1.0f);
}

// The four nearest of all points, kept in registers.
__global__ void nearest_neighbours(int n, int queries, const float2 *points, const float2 *asked, float *distances) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= queries) return;
    float best[4] = {INFINITY, INFINITY, INFINITY, INFINITY};
    for (int p = 0; p < n; p++) {
        const float dx = points[p].x - asked[i].x, dy = points[p].y - asked[i].y;
        float distance = dx * dx + dy * dy;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float kept = best[k];
            best[k] = fminf(kept, distance);
            distance = fmaxf(kept, distance);
        }
    }
#pragma unroll
    for (int k = 0; k < 4; k++) distances[i * 4 + k] = best[k];
}

// Philox 4x32, ten rounds: the counter is the thread's number.
__host__ __device__ inline uint4 philox(unsigned counter) {
    unsigned a = counter, b = 0, c = 0x1bd11bda, d = 0x2545f491, key0 = 0x9e3779b9, key1 = 0xbb67ae85;
    for (int round = 0; round < 10; round++) {
        const unsigned long long left = 0xd2511f53ull * a, right = 0xcd9e8d57ull * c;
        a = static_cast<unsigned>(right >> 32) ^ b ^ key0, b = static_cast<unsigned>(right);
        c = static_cast<unsigned>(left >> 32) ^ d ^ key1, d = static_cast<unsigned>(left);
        key0 += 0x9e3779b9, key1 += 0xbb67ae85;
    }
    return make_uint4(a, b, c, d);
}

__global__ void random_numbers(int n, uint4 *to) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] = philox(i);
}

int main(int argc, char **argv) {
    Suite suite("kernels_data", argc, argv);
    const bool large = suite.large;
    const int n = large ? 1 << 22 : 2048, grid = blocks(n, 256);
    Array<unsigned> keys(n, [](unsigned i) { return hash(i); }), to(n);
    Array<int> numbers(n, [](unsigned i) { return int(hash(i + 1) % 1000); }), sums(n), totals(grid);
    if (suite.wants("reduce")) {
        Array<long long> total(1);
        total.clear();
        suite.run([&] { reduce<<<large ? 1056 : 4, 256>>>(n, numbers, total); },
                  [&] { suite.equal(0, total.down()[0], std::accumulate(numbers.host.begin(), numbers.host.end(), 0ll)); });
    }
    if (suite.wants("scan_warps")) {
        suite.run([&] { scan_warps<<<grid, 256>>>(n, numbers, sums, totals); }, [&] {
            sums.down();
            for (int i = 0, sum = 0; i < n; i++) {
                sum = (i % 256 == 0 ? 0 : sum) + numbers.host[i];
                suite.equal(i, sums.host[i], sum);
            }
        });
    }
    if (suite.wants("scan_tree")) {
        suite.run([&] { scan_tree<<<n / 256, 128>>>(numbers, sums); }, [&] {
            sums.down();
            for (int i = 0, sum = 0; i < n; i++) {
                if (i % 256 == 0) sum = 0;
                suite.equal(i, sums.host[i], sum);
                sum += numbers.host[i];
            }
        });
    }
    Array<unsigned> bins(256);
    for (const bool shared : {false, true}) {
        if (!suite.wants(shared ? "histogram_shared" : "histogram_global")) continue;
        bins.clear();
        suite.run(
            [&] {
                if (shared) histogram_shared<<<large ? 528 : 3, 256>>>(n, reinterpret_cast<uchar4 *>(keys.operator unsigned *()), bins);
                else histogram_global<<<large ? 528 : 3, 256>>>(n, keys, bins);
            },
            [&] {
                std::vector<unsigned> expected(256, 0);
                for (const unsigned key : keys.host) {
                    for (int byte = 0; byte < (shared ? 4 : 1); byte++) expected[key >> 8 * byte & 255]++;
                }
                bins.down();
                for (int i = 0; i < 256; i++) suite.equal(i, bins.host[i], expected[i]);
            });
    }
    if (suite.wants("radix_sort")) {
        const int count = large ? n / 256 : 2;
        suite.run([&] { radix_sort<<<count, 256>>>(keys, to); }, [&] {
            to.down();
            for (int block = 0; block < std::min(count, 64); block++) {
                std::vector<unsigned> sorted(&keys.host[block * 256], &keys.host[block * 256] + 256);
                std::sort(sorted.begin(), sorted.end());
                for (int i = 0; i < 256; i++) suite.equal(block * 256 + i, to.host[block * 256 + i], sorted[i]);
            }
        });
    }
    if (suite.wants("merge_sort")) {
        Array<unsigned> runs(n, [](unsigned i) { return hash(i); });
        const int run = 64;
        for (int i = 0; i < n; i += run) std::sort(&runs.host[i], &runs.host[i] + run);
        runs.up();
        suite.run([&] { merge_sort<<<grid, 256>>>(n, run, runs, to); }, [&] {
            to.down();
            for (int i = 0; i < n; i += 2 * run) {
                std::sort(&runs.host[i], &runs.host[i] + 2 * run);
                for (int j = i; j < i + 2 * run; j++) suite.equal(j, to.host[j], runs.host[j]);
            }
        });
    }
    if (suite.wants("bitonic_step")) {
        Array<unsigned> sorted(n, [](unsigned i) { return hash(i); });
        const std::vector<unsigned> before = sorted.host;
        suite.run([&] { bitonic_step<<<grid, 256>>>(n, 128, 64, sorted); }, [&] {
            sorted.down();
            for (int i = 0; i < n; i++) {
                const unsigned a = before[i], b = before[i ^ 64];
                suite.equal(i, sorted.host[i], ((i & 64) == 0) == ((i & 128) == 0) ? std::min(a, b) : std::max(a, b));
            }
        });
    }
    if (suite.wants("compact")) {
        Array<unsigned> count(1);
        suite.run([&] { count.clear(), compact<<<grid, 256>>>(n, keys, to, count); }, [&] {
            std::vector<unsigned> expected;
            for (const unsigned key : keys.host) {
                if (key % 2 == 1) expected.push_back(key);
            }
            suite.equal(0, count.down()[0], expected.size());
            to.down();
            std::sort(expected.begin(), expected.end());
            std::sort(to.host.begin(), to.host.begin() + expected.size());
            for (size_t i = 0; i < expected.size(); i++) suite.equal(i, to.host[i], expected[i]);
        });
    }
    if (suite.wants("crc32")) {
        const int rows = large ? 65536 : 100, bytes = large ? 512 : 50;
        Array<unsigned char> from(size_t(rows) * bytes, [](unsigned i) { return static_cast<unsigned char>(hash(i)); });
        suite.run([&] { crc32<<<blocks(rows, 128), 128>>>(rows, bytes, from, to); }, [&] {
            to.down();
            for (int row = 0; row < std::min(rows, 1000); row++) {
                unsigned crc = ~0u;
                for (int i = 0; i < bytes; i++) {
                    crc ^= from.host[row * bytes + i];
                    for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? 0xedb88320u ^ crc >> 1 : crc >> 1;
                }
                suite.equal(row, to.host[row], ~crc);
            }
        });
    }
    {
        // Every key once; half of those that are asked for are there.
        Array<unsigned> inner(n, [](unsigned i) { return i * 2654435761u; });
        Array<unsigned> outer(n, [](unsigned i) { return (hash(i) % (2 * 2048)) * 2654435761u; });
        Array<unsigned long long> table(2 * n);
        Array<int> matches(n);
        const unsigned mask = 2 * n - 1;
        table.clear();
        const auto build = [&] { hash_build<<<grid, 256>>>(n, inner, mask, table); };
        if (suite.wants("hash_build")) {
            suite.run(build, [&] {
                table.down();
                std::vector<unsigned> seen;
                for (const unsigned long long entry : table.host) {
                    if (entry != 0) seen.push_back(static_cast<unsigned>(entry & 0xffffffffu));
                }
                std::sort(seen.begin(), seen.end());
                suite.equal(0, seen.size(), n);
                for (int i = 0; i < n; i++) suite.equal(i, seen[i], i + 1);
            });
        }
        if (suite.wants("hash_probe")) {
            build();
            suite.run([&] { hash_probe<<<grid, 256>>>(n, outer, mask, table, matches); }, [&] {
                matches.down();
                for (int i = 0; i < n; i++) {
                    const int wanted = int(hash(i) % (2 * 2048));
                    suite.equal(i, matches.host[i], wanted < n ? wanted : -1);
                }
            });
        }
    }
    // A graph, and a sparse matrix of the same shape.
    const int nodes = large ? 1 << 19 : 1000;
    std::vector<int> begins(nodes + 1, 0);
    for (int i = 0; i < nodes; i++) begins[i + 1] = begins[i] + int(hash(i) % 24);
    Array<int> starts(nodes + 1, [&](unsigned i) { return begins[i]; });
    const int edges_count = begins[nodes];
    Array<int> edges(edges_count, [&](unsigned i) { return int(hash(i + 12345) % nodes); });
    Array<float> values(edges_count, [](unsigned i) { return uniform(i) - 0.5f; }), x(nodes, [](unsigned i) { return uniform(i + 3); }), y(nodes);
    if (suite.wants("bfs")) {
        Array<int> levels(nodes), found(1);
        const auto at_level = [&](unsigned i) { return i % 97 == 0 ? 3 : i % 5 == 0 ? 1 : -1; };
        for (int i = 0; i < nodes; i++) levels.host[i] = at_level(i);
        levels.up();
        suite.run([&] { bfs<<<blocks(nodes, 256), 256>>>(nodes, 3, starts, edges, levels, found); }, [&] {
            levels.down();
            std::vector<int> expected(nodes);
            for (int i = 0; i < nodes; i++) expected[i] = at_level(i);
            for (int i = 0; i < nodes; i += 97) {
                for (int e = begins[i]; e < begins[i + 1]; e++) {
                    if (expected[edges.host[e]] == -1) expected[edges.host[e]] = 4;
                }
            }
            for (int i = 0; i < nodes; i++) suite.equal(i, levels.host[i], expected[i]);
        });
    }
    if (suite.wants("page_rank")) {
        Array<int> degrees(nodes, [](unsigned i) { return int(hash(i) % 7 + 1); });
        suite.run([&] { page_rank<<<blocks(nodes, 256), 256>>>(nodes, starts, edges, x, degrees, y); }, [&] {
            y.down();
            for (int node = 0; node < nodes; node++) {
                double sum = 0;
                for (int e = begins[node]; e < begins[node + 1]; e++) sum += double(x.host[edges.host[e]]) / degrees.host[edges.host[e]];
                suite.near(node, y.host[node], 0.15 / nodes + 0.85 * sum, 1e-5, 0.1);
            }
        });
    }
    if (suite.wants("spmv_vector")) {
        suite.run([&] { spmv_vector<<<blocks(size_t(nodes) * 32, 128), 128>>>(nodes, starts, edges, values, x, y); }, [&] {
            y.down();
            for (int row = 0; row < nodes; row++) {
                double sum = 0;
                for (int e = begins[row]; e < begins[row + 1]; e++) sum += double(values.host[e]) * x.host[edges.host[e]];
                suite.near(row, y.host[row], sum, 1e-5, 1);
            }
        });
    }
    if (suite.wants("sparse_transpose")) {
        std::vector<int> counts(nodes + 1, 0);
        for (const int column : edges.host) counts[column + 1]++;
        for (int i = 0; i < nodes; i++) counts[i + 1] += counts[i];
        Array<int> first(nodes, [&](unsigned i) { return counts[i]; }), next(nodes), rows(edges_count);
        Array<float> moved(edges_count);
        suite.run(
            [&] {
                // Each pass leaves the starts where the next column starts.
                CHECK(cudaMemcpyAsync(next, first, nodes * sizeof(int), cudaMemcpyDeviceToDevice));
                sparse_transpose<<<blocks(nodes, 256), 256>>>(nodes, starts, edges, values, next, rows, moved);
            },
            [&] {
                rows.down(), moved.down();
                // The rows of a column come in any order: their sums do not depend on it.
                std::vector<double> expected(nodes, 0), got(nodes, 0);
                for (int row = 0; row < nodes; row++) {
                    for (int e = begins[row]; e < begins[row + 1]; e++) expected[edges.host[e]] += values.host[e] * double(row + 1);
                }
                for (int column = 0; column < nodes; column++) {
                    for (int e = counts[column]; e < counts[column + 1]; e++) got[column] += moved.host[e] * double(rows.host[e] + 1);
                    suite.near(column, got[column], expected[column], 1e-9, nodes);
                }
            });
    }
    const int points_count = large ? 1 << 20 : 900, centres_count = large ? 64 : 7;
    Array<float2> points(points_count, [](unsigned i) { return make_float2(uniform(i), uniform(i + 1000000)); });
    Array<float2> centres(centres_count, [](unsigned i) { return make_float2(uniform(i * 77), uniform(i * 99)); });
    if (suite.wants("k_means")) {
        Array<int> nearest(points_count);
        Array<float> centre_sums(centres_count * 3);
        centre_sums.clear();
        suite.run([&] { k_means<<<blocks(points_count, 128), 128>>>(points_count, centres_count, points, centres, nearest, centre_sums); }, [&] {
            nearest.down(), centre_sums.down();
            double members = 0;
            for (int c = 0; c < centres_count; c++) members += centre_sums.host[c * 3 + 2];
            suite.equal(0, members, points_count);
            const auto distance = [&](int i, int c) {
                return std::pow(double(points.host[i].x) - centres.host[c].x, 2) + std::pow(double(points.host[i].y) - centres.host[c].y, 2);
            };
            for (int i = 0; i < std::min(points_count, 5000); i++) {
                double least = 9;
                for (int c = 0; c < centres_count; c++) least = std::min(least, distance(i, c));
                suite.near(i, distance(i, nearest.host[i]), least, 1e-4, 0.001);
            }
        });
    }
    if (suite.wants("nearest_neighbours")) {
        const int among = large ? 4096 : 200, queries = large ? 65536 : 100;
        Array<float> distances(queries * 4);
        Array<float2> asked(queries, [](unsigned i) { return make_float2(uniform(i * 3 + 1), uniform(i * 5 + 2)); });
        suite.run([&] { nearest_neighbours<<<blocks(queries, 128), 128>>>(among, queries, points, asked, distances); }, [&] {
            distances.down();
            for (int i = 0; i < std::min(queries, 200); i++) {
                std::vector<double> all;
                for (int p = 0; p < among; p++) {
                    all.push_back(std::pow(double(points.host[p].x) - asked.host[i].x, 2) + std::pow(double(points.host[p].y) - asked.host[i].y, 2));
                }
                std::partial_sort(all.begin(), all.begin() + 4, all.end());
                for (int k = 0; k < 4; k++) suite.near(i * 4 + k, distances.host[i * 4 + k], all[k], 1e-4, 0.001);
            }
        });
    }
    if (suite.wants("random_numbers")) {
        const int count = large ? 1 << 22 : 600;
        Array<uint4> words(count);
        suite.run([&] { random_numbers<<<large ? 1056 : 3, 128>>>(count, words); }, [&] {
            words.down();
            for (int i = 0; i < count; i++) {
                const uint4 expected = philox(i);
                suite.equal(i, words.host[i].x, expected.x);
                suite.equal(i, words.host[i].w, expected.w);
            }
        });
    }
    return suite.finish();
}
