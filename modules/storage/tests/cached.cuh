// What the programs that test the cache share.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <bulkhead_cache.cuh>

using storage::u32;
using storage::u64;

#define CHECK(call)                                                    \
    do {                                                               \
        cudaError_t error = (call);                                    \
        if (error != cudaSuccess) {                                    \
            printf("FAIL %s: %s\n", #call, cudaGetErrorString(error)); \
            exit(1);                                                   \
        }                                                              \
    } while (0)

constexpr u64 PAGE_WORDS = storage::PAGE_BYTES / 8;

// Word `at` of an extent, as `tenant fill` writes it.
__host__ __device__ inline u64 word(u64 seed, u64 at) {
    u64 x = seed * 0x9E3779B97F4A7C15ull + at;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    return x * 0x94D049BB133111EBull;
}

__device__ inline u64 next(u64 &x) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x;
}

// What went wrong.
struct Wrong {
    u64 values;
    u32 code;
};

__device__ inline void compare(Wrong *wrong, u32 code, u64 value, u64 expected) {
    if (code != storage::DONE) atomicCAS(&wrong->code, 0, code);
    if (code == storage::DONE && value != expected) atomicAdd(&wrong->values, 1ull);
}

// Waits for all that was launched, and tells what became of it: the program's exit status. The first error that had no other place is
// `status`.
inline int ended(const char *what, const storage::Cache &cache, const Wrong *wrong, u64 more = 0, u32 status = storage::DONE) {
    Wrong mistakes;
    storage::Told told;
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&mistakes, wrong, sizeof mistakes, cudaMemcpyDeviceToHost));
    CHECK(storage::told(cache, told));
    printf("loaded %llu, past %llu, written %llu, ahead %llu, dropped %llu\n", told.loaded, told.past, told.written, told.ahead,
           told.dropped);
    if (mistakes.code == storage::DONE && told.status != status) mistakes.code = told.status;
    if (mistakes.code != storage::DONE) {
        printf("ended with %x\n", mistakes.code);
        return 3;
    }
    printf("%s: %llu wrong\n", what, mistakes.values + more);
    return mistakes.values + more == 0 ? 0 : 4;
}
