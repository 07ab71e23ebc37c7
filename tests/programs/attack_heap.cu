// A heap that is misused, and then overwritten with its books: allocation goes on to answer, with whatever.
#include "program.h"

__device__ unsigned given;

// What is none of the heap's, or was given back already.
__global__ void astray(unsigned *other) {
    free(nullptr);
    char *const block = static_cast<char *>(malloc(100));
    free(block + 16);
    free(other);
    free(reinterpret_cast<void *>(1ull << 45));
    *block = 1;
    free(block);
    free(block);
    char *const again = static_cast<char *>(malloc(100)), *const another = static_cast<char *>(malloc(100));
    given = again != nullptr && another != nullptr && again != another;
}

// Overwrites what lies before the first block, and behind it.
__global__ void scribble(unsigned seed, unsigned words) {
    unsigned *const block = static_cast<unsigned *>(malloc(64 << 10));
    unsigned *const middle = block != nullptr ? block : reinterpret_cast<unsigned *>(seed);
    for (unsigned k = 0; k < words; k++) {
        middle[-1 - static_cast<int>(k)] = hash(seed + k);
        middle[k] = hash(seed - k);
    }
}

__global__ void use(unsigned seed) {
    for (unsigned round = 0; round < 3; round++) {
        const unsigned word = hash(seed + round * 64 + threadIdx.x);
        unsigned *const block = static_cast<unsigned *>(malloc(word >> (word & 31)));
        if (block != nullptr) *block = word;
        free(word & 64 ? block : block + word % 64);
        free(reinterpret_cast<void *>(static_cast<unsigned long long>(word) << (word & 31)));
    }
}

int main(int argc, char **argv) {
    const Program program("attack_heap", argc, argv);
    unsigned *other, sound = 0;
    CHECK(cudaMalloc(&other, 4096));
    astray<<<1, 1>>>(other);
    CHECK_KERNEL();
    CHECK(cudaMemcpyFromSymbol(&sound, given, sizeof sound));
    if (sound != 1) Program::fail("one block was given twice, or none");
    for (unsigned seed = 1; seed < 8; seed++) {
        scribble<<<1, 1>>>(seed * 7919, 24 << 10);
        use<<<2, 32>>>(seed);
        CHECK_KERNEL();
    }
    CHECK(cudaFree(other));
    return Program::pass("7 times");
}
