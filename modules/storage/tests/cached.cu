// A tenant of the module `storage` that uses the cache of pages and arrays, for its tests. Extent 0 holds what `tenant fill SEED`
// has written, or nobody has.
//
//   cached lanes SEED                lanes that miss on one page, and on all pages of one set, at once; each by itself and by warps
//   cached check SEED BLOCKS PAGES   random elements, with a cache of so many pages: by threads, warps, pages, and read ahead
//   cached write SEED BLOCKS PAGES   every element is written, some in random order; then a flush
#include "cached.cuh"

// With `one_set` each thread wants another page than its neighbours, then all the same; otherwise any element.
__global__ void check(storage::array<u64> all, u64 seed, u32 turns, bool one_set, Wrong *wrong) {
    const u64 thread = blockIdx.x * blockDim.x + threadIdx.x, pages = all.size() / PAGE_WORDS;
    u64 x = (thread + 1) * 0x9E3779B97F4A7C15ull, ahead = 0;
    for (u32 turn = 0; turn < turns; turn++) {
        u64 value = 0, at = next(x) % all.size();
        if (one_set) at = (turn % 2 == 0 ? thread * 7 + turn : turn * 5) % pages * PAGE_WORDS + thread % PAGE_WORDS;
        if (!one_set && turn % 4 == 0) all.prefetch(ahead = at);
        if (turn % 4 == 1) at = ahead;
        const bool by_warp = turn / 4 % 2 == 1;
        // Some lanes want nothing; the others are near each other, or not.
        const bool wanted = !by_warp || one_set || (at & 7) != 0;
        if (by_warp && !one_set && turn % 4 >= 2) at = (at / 32 * 32 + threadIdx.x % 32) % all.size();
        u32 code = storage::DONE;
        if (by_warp) code = all.get_warp(at, value, wanted);
        else code = all.get(at, value);
        compare(wrong, code, wanted ? value : word(seed, at), word(seed, at));
    }
}

// By pages, to memory of each warp's own. What the last page of the extent does not have is zero.
__global__ void pages(storage::Cache cache, u64 seed, u64 words, ulonglong2 *buffers, u32 turns, Wrong *wrong) {
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    ulonglong2 *mine = buffers + warp * 256;
    u64 x = (warp + 1) * 0x9E3779B97F4A7C15ull;
    for (u32 turn = 0; turn < turns; turn++) {
        const u64 page = next(x) % ((words + PAGE_WORDS - 1) / PAGE_WORDS);
        const u32 code = storage::read_page_warp(cache, 0, page, mine);
        __syncwarp();
        for (u32 at = lane; at < PAGE_WORDS; at += 32) {
            const u64 in = page * PAGE_WORDS + at;
            compare(wrong, code, reinterpret_cast<u64 *>(mine)[at], in < words ? word(seed, in) : 0);
        }
        __syncwarp();
    }
}

// The first half in any order: an odd number times the element's, cut to a power of two, so that each is written once. Then by warps.
__global__ void write(storage::array<u64> all, u64 seed, Wrong *wrong) {
    const u64 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x, half = all.size() / 2;
    for (u64 turn = thread; turn < all.size(); turn += threads) {
        const u64 at = turn < half ? turn * 0x9E3779B1 % half : turn;
        u32 code = storage::DONE;
        if (turn < half) all[at] = word(seed, at);
        else code = all.set_warp(at, word(seed, at));
        u64 value = 0;
        if (code == storage::DONE) code = all.get(at, value);
        compare(wrong, code, value, word(seed, at));
    }
}

// What was read ahead and nobody wanted is ended too.
__global__ void flush(storage::Cache cache, u32 extent, bool durable, Wrong *wrong) {
    if (durable) compare(wrong, storage::flush_block(cache, extent), 0, 0);
    else compare(wrong, storage::write_back(cache, threadIdx.x, blockDim.x, false, 0), 0, 0);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const u64 seed = argc > 2 ? strtoull(argv[2], nullptr, 0) : 0, blocks = argc > 3 ? strtoull(argv[3], nullptr, 0) : 512;
    const u32 lines = argc > 4 ? static_cast<u32>(strtoul(argv[4], nullptr, 0)) : storage::WAYS;
    storage::Cache cache;
    ulonglong2 *buffers;
    Wrong *wrong;
    CHECK(storage::make(cache, lines));
    CHECK(cudaMalloc(&buffers, 64 * storage::PAGE_BYTES));
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    const storage::array<u64> all(cache, 0, blocks * 64), few(cache, 0, 9 * PAGE_WORDS);
    if (!strcmp(what, "lanes")) {
        check<<<1, 32>>>(all, seed, 16, true, wrong);
        check<<<4, 64>>>(all, seed, 16, true, wrong);
        check<<<2, 64>>>(few, seed, 16, true, wrong);
    } else if (!strcmp(what, "check")) {
        check<<<4, 32>>>(all, seed, 64, false, wrong);
        pages<<<2, 64>>>(cache, seed, blocks * 64, buffers, 20, wrong);
        flush<<<1, 64>>>(cache, 0, false, wrong);
    } else if (!strcmp(what, "write")) {
        write<<<4, 32>>>(all, seed, wrong);
        CHECK(cudaDeviceSynchronize());
        flush<<<1, 64>>>(cache, 0, true, wrong);
    } else {
        printf("FAIL no such thing: %s\n", what);
        return 2;
    }
    return ended(what, cache, wrong);
}
