// Memory that kernels allocate: blocks of all sizes by all threads at once, apart from each other, kept from kernel to
// kernel, given back and used again; what does not fit is null.
#include "program.h"

constexpr int threads = 256, blocks = 8, total = threads * blocks;
constexpr size_t heap_bytes = 4 << 20;

struct Node {
    Node *next;
    unsigned value;
};

__device__ unsigned *kept[total];
__device__ unsigned failed, wrong, given;
__device__ Node *list;

__device__ unsigned words_of(unsigned i, unsigned round) { return 1 + hash(i * 31 + round) % 300; }

// Each thread fills a block with what only it writes.
__global__ void take(unsigned round) {
    const unsigned i = blockIdx.x * threads + threadIdx.x, words = words_of(i, round);
    unsigned *const block = static_cast<unsigned *>(malloc(words * sizeof(unsigned)));
    kept[i] = block;
    if (block == nullptr) {
        atomicAdd(&failed, 1u);
        return;
    }
    if (reinterpret_cast<size_t>(block) % 16 != 0) atomicAdd(&wrong, 1u);
    for (unsigned k = 0; k < words; k++) block[k] = i * 1000 + k + round;
}

// A later kernel, and another thread, finds it and gives it back.
__global__ void give(unsigned round) {
    const unsigned i = (blockIdx.x * threads + threadIdx.x) ^ 5, words = words_of(i, round);
    unsigned *const block = kept[i];
    if (block == nullptr) return;
    for (unsigned k = 0; k < words; k++) {
        if (block[k] != i * 1000 + k + round) atomicAdd(&wrong, 1u);
    }
    free(block);
}

// Takes and gives back within one kernel, over and over.
__global__ void churn(int rounds) {
    const unsigned i = blockIdx.x * threads + threadIdx.x;
    for (int round = 0; round < rounds; round++) {
        const unsigned words = 4 + hash(i + round * 977) % 60;
        unsigned *const block = new unsigned[words];
        if (block == nullptr) {
            atomicAdd(&failed, 1u);
            continue;
        }
        block[0] = i;
        block[words - 1] = i;
        if (round & 1) __syncwarp();
        if (block[0] != i || block[words - 1] != i) atomicAdd(&wrong, 1u);
        delete[] block;
    }
}

// All of the heap in pieces of so many bytes, by one thread.
__global__ void exhaust(size_t bytes, unsigned pieces_max) {
    unsigned pieces = 0;
    char *last = nullptr;
    for (; pieces < pieces_max; pieces++) {
        char *const piece = static_cast<char *>(malloc(bytes));
        if (piece == nullptr) break;
        *reinterpret_cast<char **>(piece) = last;
        last = piece;
    }
    given = pieces;
    while (last != nullptr) {
        char *const before = *reinterpret_cast<char **>(last);
        free(last);
        last = before;
    }
}

__global__ void push() {
    Node *const node = new Node;
    node->value = blockIdx.x * threads + threadIdx.x;
    Node *seen = list;
    do {
        node->next = seen;
        seen = reinterpret_cast<Node *>(atomicCAS(reinterpret_cast<unsigned long long *>(&list),
                                                  reinterpret_cast<unsigned long long>(node->next),
                                                  reinterpret_cast<unsigned long long>(node)));
    } while (seen != node->next);
}

__global__ void drain(unsigned *seen) {
    for (Node *node = list; node != nullptr;) {
        seen[node->value]++;
        Node *const next = node->next;
        delete node;
        node = next;
    }
    list = nullptr;
}

static unsigned value(unsigned &variable) {
    unsigned found = 0, zero = 0;
    CHECK(cudaMemcpyFromSymbol(&found, variable, sizeof found));
    CHECK(cudaMemcpyToSymbol(variable, &zero, sizeof zero));
    return found;
}

static void sound(const char *what) {
    const unsigned bad = value(wrong), lost = value(failed);
    if (bad != 0 || lost != 0) Program::fail("%s: %u wrong, %u without memory", what, bad, lost);
}

int main(int argc, char **argv) {
    const Program program("device_heap", argc, argv);
    // The code is there by now; no kernel has allocated.
    sound("before");
    CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, heap_bytes));
    size_t limit = 0;
    CHECK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    if (limit < heap_bytes) Program::fail("a heap of %zu bytes", limit);
    unsigned most = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (unsigned round = 0; round < 3; round++) {
            take<<<blocks, threads>>>(round);
            CHECK_KERNEL();
            sound("take");
            give<<<blocks, threads>>>(round);
            CHECK_KERNEL();
            sound("give");
        }
        churn<<<blocks, threads>>>(4);
        CHECK_KERNEL();
        sound("churn");
        for (const size_t bytes : {size_t(100), size_t(3000), size_t(70000), heap_bytes / 2}) {
            const unsigned fit = static_cast<unsigned>(heap_bytes / bytes);
            exhaust<<<1, 1>>>(bytes, 4 * fit);
            CHECK_KERNEL();
            const unsigned pieces = value(given);
            if (pieces < fit / 2 || pieces >= 4 * fit) Program::fail("pass %d: %u of %zu bytes", pass, pieces, bytes);
            if (most < pieces) most = pieces;
        }
        exhaust<<<1, 1>>>(size_t(1) << 40, 1);
        CHECK_KERNEL();
        if (value(given) != 0) Program::fail("a tebibyte was given");
    }
    unsigned *seen, counts[total];
    CHECK(cudaMalloc(&seen, sizeof counts));
    CHECK(cudaMemset(seen, 0, sizeof counts));
    push<<<blocks, threads>>>();
    drain<<<1, 1>>>(seen);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(counts, seen, sizeof counts, cudaMemcpyDeviceToHost));
    for (int i = 0; i < total; i++) {
        if (counts[i] != 1) Program::fail("node %d is in the list %u times", i, counts[i]);
    }
    CHECK(cudaFree(seen));
    return Program::pass("%u pieces", most);
}
