// What few programs have: warps that load for others behind barriers with a count, and large arrays of each thread's own.
#include "kernels.h"

constexpr int TILE = 128;
constexpr int WORDS = 4096;

__device__ void wait_at(int number) { asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(2 * TILE) : "memory"); }
__device__ void arrive_at(int number) { asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(2 * TILE) : "memory"); }

// Half of a block loads rows while the other half takes the scalar product of each with the one before.
__global__ void row_products(const float *rows, float *sums, int count) {
    __shared__ float tile[2][TILE];
    const int mine = threadIdx.x % TILE;
    const float *from = rows + static_cast<size_t>(blockIdx.x) * count * TILE;
    if (threadIdx.x < TILE) {
        for (int i = 0; i < count; i++) {
            if (i >= 2) wait_at(3 + i % 2);
            tile[i % 2][mine] = from[i * TILE + mine];
            arrive_at(1 + i % 2);
        }
    } else {
        float sum = 0, before = 0;
        for (int i = 0; i < count; i++) {
            wait_at(1 + i % 2);
            const float word = tile[i % 2][mine ^ 1];
            sum += word * before;
            before = word;
            if (i + 2 < count) arrive_at(3 + i % 2);
        }
        sums[blockIdx.x * TILE + (mine ^ 1)] = sum;
    }
}

// Each thread counts how often each of many words comes, in an array of its own, and takes the largest.
__global__ void own_histogram(const unsigned *words, unsigned *most, int each, int n) {
    unsigned counts[WORDS];
    const int mine = blockIdx.x * blockDim.x + threadIdx.x;
    if (mine >= n) return;
    for (int i = 0; i < WORDS; i++) counts[i] = 0;
    unsigned largest = 0;
    for (int i = 0; i < each; i++) {
        const unsigned count = ++counts[words[(mine * 13u + i) % n] % WORDS];
        largest = max(largest, count * WORDS + words[(mine * 13u + i) % n] % WORDS);
    }
    most[mine] = largest;
}

int main(int argc, char **argv) {
    Suite suite("kernels_seldom", argc, argv);
    const bool large = suite.large;
    if (suite.wants("row_products")) {
        const int blocks = large ? 1056 : 3, count = large ? 256 : 9;
        Array<float> rows(static_cast<size_t>(blocks) * count * TILE, uniform), sums(blocks * TILE);
        suite.run([&] { row_products<<<blocks, 2 * TILE>>>(rows, sums, count); }, [&] {
            sums.down();
            for (int at = 0; at < blocks * TILE; at += large ? 97 : 1) {
                double sum = 0;
                const float *from = &rows.host[static_cast<size_t>(at / TILE) * count * TILE + at % TILE];
                for (int i = 1; i < count; i++) sum += double(from[i * TILE]) * from[(i - 1) * TILE];
                suite.near(at, sums.host[at], sum, 1e-4);
            }
        });
    }
    if (suite.wants("own_histogram")) {
        const int n = large ? 270336 : 100, each = large ? 2000 : 60;
        Array<unsigned> words(n, [](unsigned i) { return hash(i) % 300; }), most(n);
        suite.run([&] { own_histogram<<<blocks(n, 128), 128>>>(words, most, each, n); }, [&] {
            most.down();
            for (int at = 0; at < n; at += large ? 1009 : 1) {
                std::vector<unsigned> counts(WORDS);
                unsigned largest = 0;
                for (int i = 0; i < each; i++) {
                    const unsigned word = words.host[(at * 13u + i) % n] % WORDS;
                    largest = std::max(largest, ++counts[word] * WORDS + word);
                }
                suite.equal(at, most.host[at], largest);
            }
        });
    }
    return suite.finish();
}
