// How fast pages and elements are that the cache has: hits PAGES TURNS BLOCKS, of 256 threads each, which take turns at so many pages
// of extent 0.
#include "cached.cuh"

__global__ void hit_pages(storage::Cache cache, u32 count, u32 turns, ulonglong2 *sums, Wrong *wrong) {
    using namespace storage::detail;
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    u64 x = (thread / 32 + 1) * 0x9E3779B97F4A7C15ull, sum = 0;
    for (u32 turn = 0; turn < turns; turn++) {
        const Past past = {sums + thread, 0, 1, 0, 1};
        const u32 code = with_warp(
            cache, key_of(0, next(x) % count), past, true, READS, false,
            [&](const Held &held) {
                // What was read past the cache holds a buffer.
                if (held.kind == Held::PAST && lane == 0) storage_end(held.ticket);
                if (held.kind != Held::LINE) return;
                const ulonglong2 *from = cache.page(held.line);
#pragma unroll
                for (u32 at = 0; at < storage::PAGE_BYTES / 16; at += 32) {
                    const ulonglong2 two = from[at + lane];
                    sum += two.x ^ two.y;
                }
            },
            [](u32) {});
        compare(wrong, code, 0, 0);
    }
    sums[thread].x = sum;
}

template <bool BY_WARP>
__global__ void hit_elements(storage::array<u64> all, u32 turns, ulonglong2 *sums, Wrong *wrong) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    u64 x = (thread / 32 + 1) * 0x9E3779B97F4A7C15ull, sum = 0, value = 0;
    for (u32 turn = 0; turn < turns; turn++) {
        const u64 at = (next(x) % all.size()) / 32 * 32 + threadIdx.x % 32;
        u32 code = storage::DONE;
        if (BY_WARP) code = all.get_warp(at, value);
        else code = all.get(at, value);
        compare(wrong, code, 0, 0);
        sum += value;
    }
    sums[thread].x = sum;
}

// Bytes a second, of a second run: the first one loads what is to be there.
static void measure(const char *name, double bytes, void (*launch)(void *), void *of) {
    cudaEvent_t begin, end;
    float milliseconds = 0;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (u32 round = 0; round < 2; round++) {
        CHECK(cudaEventRecord(begin));
        launch(of);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(end));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    }
    printf("cache hits, %s: %.3f GB/s\n", name, bytes / milliseconds / 1e6);
    fflush(stdout);
}

struct Hits {
    storage::Cache cache;
    u32 pages, turns, blocks;
    ulonglong2 *sums;
    Wrong *wrong;

    storage::array<u64> all() const { return storage::array<u64>(cache, 0, pages * PAGE_WORDS); }
};

int main(int argc, char **argv) {
    const u32 pages = argc > 1 ? static_cast<u32>(strtoul(argv[1], nullptr, 0)) : 64;
    const u32 turns = argc > 2 ? static_cast<u32>(strtoul(argv[2], nullptr, 0)) : 100;
    const u32 blocks = argc > 3 ? static_cast<u32>(strtoul(argv[3], nullptr, 0)) : 4;
    storage::Cache cache;
    ulonglong2 *buffers;
    Wrong *wrong;
    CHECK(storage::make(cache, pages * 2 / storage::WAYS * storage::WAYS + storage::WAYS));
    CHECK(cudaMalloc(&buffers, blocks * 256 * sizeof *buffers));
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    Hits hits = {cache, pages, turns, blocks, buffers, wrong};
    const double threads = 256.0 * blocks * turns;
    measure("pages", threads * 128, [](void *of) {
        const Hits &my = *static_cast<Hits *>(of);
        hit_pages<<<my.blocks, 256>>>(my.cache, my.pages, my.turns, my.sums, my.wrong);
    }, &hits);
    measure("elements by warps", threads * 8, [](void *of) {
        const Hits &my = *static_cast<Hits *>(of);
        hit_elements<true><<<my.blocks, 256>>>(my.all(), my.turns, my.sums, my.wrong);
    }, &hits);
    measure("elements by threads", threads * 8, [](void *of) {
        const Hits &my = *static_cast<Hits *>(of);
        hit_elements<false><<<my.blocks, 256>>>(my.all(), my.turns, my.sums, my.wrong);
    }, &hits);
    return ended("hits", cache, wrong);
}
