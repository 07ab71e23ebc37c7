// A tenant of the module `storage` that uses the cache of pages as it is not meant to be used.
//
//   edges pinned SEED          all lines are in use: reads go past, reads ahead are dropped, writes are told BUSY
//   edges targets              what cannot be reached is refused, and no buffer stays behind
//   edges errors BLOCKS        elements and extents that are not there; extent 1 may be read only
#include "cached.cuh"

// One thread holds all lines, as threads that are in the middle of something do.
__global__ void pin(storage::Cache cache) {
#pragma unroll 1
    for (u64 page = 0; page < storage::WAYS; page++) {
        storage::detail::access(cache, storage::detail::key_of(0, page), {}, storage::detail::READS);
    }
}

__global__ void pinned(storage::array<u64> all, storage::Cache cache, ulonglong2 *buffer, u64 seed, Wrong *wrong) {
    u64 value = 0;
    u32 code = storage::read_page_warp(cache, 0, 11, buffer);
    __syncwarp();
    compare(wrong, code, reinterpret_cast<u64 *>(buffer)[threadIdx.x], word(seed, 11 * PAGE_WORDS + threadIdx.x));
    // What is there is there; what is not is read past.
#pragma unroll 1
    for (u32 turn = 0; turn < 3; turn++) {
        const u64 page = turn == 2 ? 0 : 9 + turn, at = page * PAGE_WORDS + threadIdx.x;
        code = all.get_warp(at, value);
        compare(wrong, code, value, word(seed, at));
    }
    if (threadIdx.x == 0) {
        compare(wrong, 0, storage::prefetch(cache, 0, 12), 0);
        compare(wrong, 0, all.set(9 * PAGE_WORDS, 0), storage::BUSY);
    }
}

__global__ void targets(char *buffer, Wrong *wrong) {
#pragma unroll 1
    for (u32 turn = 0; turn < 100; turn++) {
        compare(wrong, 0, storage::read_warp(0, 0, buffer + 8), storage::TARGET);
        if (threadIdx.x == 0) compare(wrong, 0, storage::read(0, 0, 8, buffer + 8), storage::TARGET);
        __syncwarp();
    }
}

// How many buffers are free, where nobody else takes any.
__global__ void free_buffers(u32 *count) {
    u32 found = 0;
#pragma unroll 1
    for (u32 turn = 0; turn < storage::detail::MODULE_BUFFERS; turn++) {
        const u32 ticket = storage_begin();
        if (ticket < storage::FAILED) storage_end(ticket), found++;
    }
    *count = found;
}

// What is asked, of arrays that are too long, of an extent that is not there, and of one that may be read only.
struct Step {
    u32 extent;
    enum Kind : u32 { GET, SET, FLUSH, VALUE, STATUS } kind;
    u64 count, at;
    u32 expected;
};

__global__ void errors(storage::Cache cache, const Step *steps, u32 count, u32 *codes) {
    u64 value = 1;
    for (u32 at = 0; at < count; at++) {
        const Step step = steps[at];
        const storage::array<u64> all(cache, step.extent, step.count);
        switch (step.kind) {
            case Step::GET: codes[at] = all.get(step.at, value); break;
            case Step::SET: codes[at] = all.set(step.at, value); break;
            case Step::FLUSH: codes[at] = storage::write_back(cache, 0, 1, true, step.extent); break;
            case Step::VALUE: codes[at] = all[step.at] == 0 ? 0 : 1; break;
            case Step::STATUS: codes[at] = cache.told()->status;
        }
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const u64 first = argc > 2 ? strtoull(argv[2], nullptr, 0) : 0;
    storage::Cache cache;
    ulonglong2 *buffers;
    Wrong *wrong;
    u64 mistakes = 0;
    CHECK(storage::make(cache, storage::WAYS));
    CHECK(cudaMalloc(&buffers, storage::PAGE_BYTES));
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    if (!strcmp(what, "pinned")) {
        pin<<<1, 1>>>(cache);
        CHECK(cudaDeviceSynchronize());
        pinned<<<1, 32>>>(storage::array<u64>(cache, 0, 64 * PAGE_WORDS), cache, buffers, first, wrong);
    } else if (!strcmp(what, "targets")) {
        u32 *count, found;
        CHECK(cudaMalloc(&count, sizeof *count));
        targets<<<1, 32>>>(reinterpret_cast<char *>(buffers), wrong);
        free_buffers<<<1, 1>>>(count);
        CHECK(cudaMemcpy(&found, count, sizeof found, cudaMemcpyDeviceToHost));
        mistakes = storage::detail::MODULE_BUFFERS - found;
    } else if (!strcmp(what, "errors")) {
        using namespace storage;
        const u64 all = 64 * first, much = all + 1000;
        const Step steps[] = {
            {0, Step::GET, all, all - 1, DONE},       {0, Step::GET, all, all, RANGE},    {0, Step::GET, all, ~0ull, RANGE},
            {0, Step::GET, much, all + 900, RANGE},   {5, Step::GET, 10, 0, NOT_OPEN},    {16, Step::GET, 10, 0, NOT_OPEN},
            {0, Step::SET, all, all, RANGE},          {0, Step::STATUS, 0, 0, DONE},      {5, Step::VALUE, 10, 3, 0},
            {0, Step::STATUS, 0, 0, NOT_OPEN},        {1, Step::SET, 64, 0, DONE},        {0, Step::FLUSH, 0, 0, RIGHTS},
            {1, Step::FLUSH, 0, 0, RIGHTS},
        };
        constexpr u32 tried = sizeof steps / sizeof *steps;
        Step *given;
        u32 *codes, found[tried];
        CHECK(cudaMalloc(&given, sizeof steps));
        CHECK(cudaMalloc(&codes, sizeof found));
        CHECK(cudaMemcpy(given, steps, sizeof steps, cudaMemcpyHostToDevice));
        errors<<<1, 1>>>(cache, given, tried, codes);
        CHECK(cudaMemcpy(found, codes, sizeof found, cudaMemcpyDeviceToHost));
        for (u32 at = 0; at < tried; at++) {
            if (found[at] == steps[at].expected) continue;
            printf("step %u: %x and not %x\n", at, found[at], steps[at].expected);
            mistakes++;
        }
    } else {
        printf("FAIL no such thing: %s\n", what);
        return 2;
    }
    return ended(what, cache, wrong, mistakes, !strcmp(what, "errors") ? storage::NOT_OPEN : storage::DONE);
}
