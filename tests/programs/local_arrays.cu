// Threads with large arrays of their own: a sort, a stack of intervals and a table, 20 to 40 KiB for each.
#include "program.h"

#include <algorithm>
#include <vector>

constexpr int WORDS = 5000;

// Sorts words of its own in a heap, in local memory.
__global__ void sorted(unsigned *sums, int count) {
    unsigned words[WORDS];
    const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < count; i++) {
        int at = i;
        const unsigned word = hash(mine * 7919 + i);
        while (at > 0 && words[(at - 1) / 2] < word) {
            words[at] = words[(at - 1) / 2];
            at = (at - 1) / 2;
        }
        words[at] = word;
    }
    unsigned sum = 0;
    for (int left = count; left > 0; left--) {
        sum = hash(sum ^ words[0]);
        const unsigned word = words[left - 1];
        int at = 0;
        for (;;) {
            int next = 2 * at + 1;
            if (next >= left - 1) break;
            if (next + 1 < left - 1 && words[next + 1] > words[next]) next++;
            if (words[next] <= word) break;
            words[at] = words[next];
            at = next;
        }
        words[at] = word;
    }
    sums[mine] = sum;
}

struct Table {
    unsigned counts[10000];
};

__device__ __noinline__ unsigned walked(Table *table, unsigned from, int steps) {
    unsigned at = from;
    for (int i = 0; i < steps; i++) {
        at = hash(at + i);
        table->counts[at % 10000] += at;
    }
    return table->counts[at % 10000];
}

// A table of 40 KiB that a function is given by its address; what nobody wrote is not read.
__global__ void tables(unsigned *sums, int steps) {
    Table table;
    for (int i = 0; i < 10000; i++) table.counts[i] = i;
    const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
    sums[mine] = walked(&table, mine, steps);
}

// Quotients, for which the compiler adds a function to the kernel: it is said to have as much local memory as that.
__host__ __device__ static unsigned quotient(unsigned mine, int i) { return __builtin_bit_cast(unsigned, (mine + i) / (3.0f + i)); }

__global__ void quotients(unsigned *sums, int count) {
    float quotients[WORDS];
    const unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < count; i++) quotients[hash(i) % WORDS] = (mine + i) / (3.0f + i);
    unsigned sum = 0;
    for (int i = count - 20; i < count; i++) sum = hash(sum ^ __float_as_uint(quotients[hash(i) % WORDS]));
    sums[mine] = sum;
}

static void compare(const char *what, const unsigned *sums, const std::vector<unsigned> &expected) {
    std::vector<unsigned> found(expected.size());
    CHECK(cudaMemcpy(found.data(), sums, found.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < expected.size(); i++) {
        if (found[i] != expected[i]) Program::fail("%s: sums[%zu] = %u, not %u", what, i, found[i], expected[i]);
    }
}

int main(int argc, char **argv) {
    const Program program("local_arrays", argc, argv);
    const int blocks = program.large ? 2000 : 2, threads = 64, count = program.large ? WORDS : 300, steps = 200;
    unsigned *sums;
    CHECK(cudaMalloc(&sums, blocks * threads * sizeof(unsigned)));
    std::vector<unsigned> expected(blocks * threads);
    sorted<<<blocks, threads>>>(sums, count);
    CHECK_KERNEL();
    // Some are enough: the host is slow.
    expected.resize(std::min(blocks * threads, 2000));
    for (int mine = 0; mine < static_cast<int>(expected.size()); mine++) {
        std::vector<unsigned> words(count);
        for (int i = 0; i < count; i++) words[i] = hash(mine * 7919u + i);
        std::sort(words.rbegin(), words.rend());
        unsigned sum = 0;
        for (unsigned word : words) sum = hash(sum ^ word);
        expected[mine] = sum;
    }
    compare("sorted", sums, expected);
    expected.assign(blocks * threads, 0);
    tables<<<blocks, threads>>>(sums, steps);
    CHECK_KERNEL();
    for (int mine = 0; mine < blocks * threads; mine++) {
        std::vector<unsigned> counts(10000);
        for (int i = 0; i < 10000; i++) counts[i] = i;
        unsigned at = mine;
        for (int i = 0; i < steps; i++) {
            at = hash(at + i);
            counts[at % 10000] += at;
        }
        expected[mine] = counts[at % 10000];
    }
    compare("tables", sums, expected);
    quotients<<<blocks, threads>>>(sums, 300);
    CHECK_KERNEL();
    for (int mine = 0; mine < blocks * threads; mine++) {
        std::vector<unsigned> last(WORDS);
        for (int i = 0; i < 300; i++) last[hash(i) % WORDS] = quotient(mine, i);
        unsigned sum = 0;
        for (int i = 280; i < 300; i++) sum = hash(sum ^ last[hash(i) % WORDS]);
        expected[mine] = sum;
    }
    compare("quotients", sums, expected);
    CHECK(cudaFree(sums));
    return Program::pass("%d threads, %d words, %d steps", blocks * threads, count, steps);
}
