// A tenant of the module `storage`, for its tests.
//
//   tenant fill SEED BLOCKS       every block of extent 0 gets what SEED says, in commands of 1 to 8 blocks, then a flush
//   tenant check SEED BLOCKS      reads every block of extent 0, in commands of other lengths, and compares
//   tenant warps SEED BLOCKS      the same by warps, 4 KiB at a time
//   tenant attack                 what no caller may do: extent 0 is written, extent 1 is only read, and both are 64 blocks long
//   tenant codes SEED             what 200 random commands are answered, which are made of SEED
//   tenant spin                   reads for ever
//   tenant rate THREADS READS BLOCKS   random reads of 4 KiB of an extent of so many blocks, on so many threads, without fetching them
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <bulkhead_storage.cuh>

using storage::u32;
using storage::u64;

#define CHECK(call)                                                                                        \
    do {                                                                                                   \
        cudaError_t error = (call);                                                                        \
        if (error != cudaSuccess) {                                                                        \
            printf("FAIL %s: %s\n", #call, cudaGetErrorString(error));                                     \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

// Word `at` of a block.
__host__ __device__ u64 word(u64 seed, u64 block, u32 at) {
    u64 x = seed * 0x9E3779B97F4A7C15ull + block * 64 + at;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    return x * 0x94D049BB133111EBull;
}

// What gates do not reach is refused, and no buffer is kept.
__global__ void targets(ulonglong2 *buffers, u32 *codes) {
    __shared__ ulonglong2 shared[32];
    ulonglong2 local[32];
    local[threadIdx.x].x = 7;
    char *odd = reinterpret_cast<char *>(buffers) + 8;
    void *const to[] = {shared, local, odd};
    for (u32 turn = 0; turn < 600; turn++) {
        for (u32 at = 0; at < 3; at++) {
            const u32 code = storage::read(0, 0, 1, to[at]);
            if (turn == 0) codes[at] = code == storage::TARGET ? 0 : code + 1;
        }
    }
    codes[3] = storage::read(0, 0, 1, buffers) == 0 && local[threadIdx.x].x == 7 ? 0 : 1;
}

// A thread's own blocks begin at its number times `each`; it takes them in commands of 1 to 8.
__global__ void fill(u64 seed, u64 blocks, u64 each, ulonglong2 *buffers, u32 *codes) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    u64 *mine = reinterpret_cast<u64 *>(buffers + thread * 256);
    const u64 end = min(blocks, (thread + 1) * each);
    u32 code = storage::DONE;
    for (u64 block = thread * each; block < end && code == storage::DONE;) {
        const u32 count = static_cast<u32>(min(1 + (block * 5 + thread) % 8, end - block));
        for (u32 at = 0; at < count * 64; at++) mine[at] = word(seed, block + at / 64, at % 64);
        code = storage::write(0, block, count, mine);
        block += count;
    }
    codes[thread] = code;
}

__global__ void check(u64 seed, u64 blocks, u64 each, ulonglong2 *buffers, u32 *codes, u64 *wrong) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    u64 *mine = reinterpret_cast<u64 *>(buffers + thread * 256);
    const u64 end = min(blocks, (thread + 1) * each);
    u32 code = storage::DONE;
    for (u64 block = thread * each; block < end && code == storage::DONE;) {
        const u32 count = static_cast<u32>(min(1 + (block * 3 + thread) % 8, end - block));
        code = storage::read(0, block, count, mine);
        for (u32 at = 0; at < count * 64; at++) {
            if (mine[at] != word(seed, block + at / 64, at % 64)) atomicAdd(wrong, 1);
        }
        block += count;
    }
    codes[thread] = code;
}

__global__ void warps(u64 seed, u64 blocks, ulonglong2 *buffers, u32 *codes, u64 *wrong) {
    const u32 own = threadIdx.y * blockDim.x + threadIdx.x, size = blockDim.x * blockDim.y;
    const u32 thread = blockIdx.x * size + own, warp = thread / 32, all = gridDim.x * size / 32;
    u64 *mine = reinterpret_cast<u64 *>(buffers + warp * 256);
    u32 code = storage::DONE;
    for (u64 block = warp * 8; block + 8 <= blocks; block += all * 8) {
        const u32 read = storage::read_warp(0, block, mine);
        if (read != storage::DONE) code = read;
        __syncwarp();
        for (u32 at = own % 32; at < 512; at += 32) {
            if (mine[at] != word(seed, block + at / 64, at % 64)) atomicAdd(wrong, 1);
        }
        __syncwarp();
    }
    codes[thread] = code;
}

__global__ void flush(u32 *codes) { codes[0] = storage::flush(0); }

// What a caller may try, and what it is answered.
struct Step {
    enum Kind { Begin, Put, Submit, Poll, Wait, Fetch, End } kind;
    u32 ticket;  // other bits than those of the ticket that began last
    u32 first;   // extent, or offset
    u32 operation;
    u64 block;
    u32 count, expected;
};

// One after the other, on one thread: a gate's code stands here once for all.
__global__ void attack(const Step *steps, u32 count, u32 *codes, ulonglong2 *memory) {
    u32 last = 0;
    for (u32 at = 0; at < count; at++) {
        const Step step = steps[at];
        const u32 ticket = last ^ step.ticket;
        u32 code = storage::BUSY;
        switch (step.kind) {
            case Step::Begin: code = storage_begin(); break;
            case Step::Put: code = storage_put(ticket, step.first, memory); break;
            case Step::Submit: code = storage_submit(ticket, step.first, step.operation, step.block, step.count); break;
            case Step::Fetch: code = storage_fetch(ticket, step.first, memory); break;
            case Step::End: code = storage_end(ticket); break;
            case Step::Poll:
            case Step::Wait:
                do code = storage_poll(ticket);
                while (step.kind == Step::Wait && code == storage::BUSY);
        }
        if (step.kind == Step::Begin) last = code;
        codes[at] = step.kind == Step::Begin && code < storage::FAILED ? 0 : code;
    }
}

// All threads do all they can with all tickets there may be, at once: whatever comes of it is the caller's own.
__global__ void storm(u32 turns, ulonglong2 *memory) {
    u64 x = (blockIdx.x * blockDim.x + threadIdx.x + 1) * 0x9E3779B97F4A7C15ull;
    for (u32 turn = 0; turn < turns; turn++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        const u32 ticket = static_cast<u32>(x >> 20) % (4 * 512);
        switch (x % 6) {
            case 0: storage_begin(); break;
            case 1: storage_put(ticket, static_cast<u32>(x >> 40), memory); break;
            case 2: storage_submit(ticket, x >> 33 & 1, x >> 35 & 3, x >> 40 & 127, x >> 50 & 15); break;
            case 3: storage_poll(ticket); break;
            case 4: storage_fetch(ticket, static_cast<u32>(x >> 40), memory); break;
            case 5: storage_end(ticket); break;
        }
    }
}

__global__ void spin(ulonglong2 *buffers, u32 *codes) {
    u32 code = storage::DONE;
    for (u64 block = threadIdx.x; code == storage::DONE; block += 7) {
        code = storage::read(0, block % 64, 1, buffers + threadIdx.x * 256);
    }
    codes[threadIdx.x] = code;
}

// Each warp reads with its lanes on their own, so that as many commands are on their way as there are threads.
__global__ void rate(u64 blocks, u32 reads, ulonglong2 *buffers, u32 *codes) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    u64 x = (thread + 1) * 0x9E3779B97F4A7C15ull;
    u32 code = storage::DONE;
    for (u32 turn = 0; turn < reads && code == storage::DONE; turn++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        u32 ticket;
        code = storage::read_async(0, x % (blocks / 8) * 8, 8, ticket);
        if (code == storage::DONE) code = storage::written(ticket);
    }
    codes[thread] = code;
}

std::vector<Step> steps() {
    using namespace storage;
    std::vector<Step> all = {{Step::Begin, 0, 0, 0, 0, 0, DONE}};
    for (u32 extent = 0; extent < 2; extent++) {
        for (u64 far : {64ull, 1ull << 32, 1ull << 55, 1ull << 63, ~0ull, ~0ull - 7}) {
            all.push_back({Step::Submit, 0, extent, READ, far, 1, RANGE});
        }
        all.push_back({Step::Submit, 0, extent, READ, 63, 2, RANGE});
        all.push_back({Step::Submit, 0, extent, READ, 57, 8, RANGE});
        for (u32 count : {0u, 9u, 1u << 16, ~0u}) all.push_back({Step::Submit, 0, extent, READ, 0, count, LENGTH});
        for (u32 operation : {3u, 9u, 32u, 34u, 0x80u, 1u << 16, ~0u}) {
            all.push_back({Step::Submit, 0, extent, operation, 0, 1, RIGHTS});
        }
    }
    all.push_back({Step::Submit, 0, 1, WRITE, 0, 1, RIGHTS});
    all.push_back({Step::Submit, 0, 1, FLUSH, 0, 0, RIGHTS});
    for (u32 extent : {2u, 15u, 16u, ~0u}) all.push_back({Step::Submit, 0, extent, READ, 0, 1, NOT_OPEN});
    for (u32 offset : {4096u, ~0u - 63, 8u, 63u}) {
        all.push_back({Step::Put, 0, offset, 0, 0, 0, RANGE});
        all.push_back({Step::Fetch, 0, offset, 0, 0, 0, RANGE});
    }
    const std::vector<Step> order = {
        {Step::Fetch, 0, 0, 0, 0, 0, NOT_OPEN},  // not read yet
        {Step::Poll, 0, 0, 0, 0, 0, NOT_OPEN},   // not submitted
        {Step::Submit, 512, 0, READ, 0, 1, NOT_OPEN},  // another use of the buffer
        {Step::Submit, 0x80000000, 0, READ, 0, 1, NOT_OPEN},
        {Step::Submit, 1u << 24, 0, READ, 0, 1, NOT_OPEN},  // no ticket
        {Step::Submit, 1, 0, READ, 0, 1, NOT_OPEN},  // nobody's
        {Step::End, 1, 0, 0, 0, 0, NOT_OPEN},
        {Step::Put, 0, 0, 0, 0, 0, DONE},
        {Step::Submit, 0, 0, READ, 0, 1, DONE},
        {Step::Submit, 0, 0, READ, 0, 1, NOT_OPEN},  // twice
        {Step::Put, 0, 0, 0, 0, 0, NOT_OPEN},        // on its way
        {Step::Wait, 0, 0, 0, 0, 0, DONE},
        {Step::Submit, 0, 0, READ, 0, 1, NOT_OPEN},  // ended
        {Step::Fetch, 0, 4032, 0, 0, 0, DONE},
        {Step::End, 0, 0, 0, 0, 0, DONE},
        {Step::End, 0, 0, 0, 0, 0, NOT_OPEN},  // twice
        {Step::Poll, 0, 0, 0, 0, 0, NOT_OPEN},
        {Step::Fetch, 0, 0, 0, 0, 0, NOT_OPEN},
        {Step::Begin, 0, 0, 0, 0, 0, DONE},
        {Step::Submit, 0, 0, WRITE, 63, 1, DONE},  // the last block
        {Step::Wait, 0, 0, 0, 0, 0, DONE},
        {Step::End, 0, 0, 0, 0, 0, DONE},
    };
    all.insert(all.end(), order.begin(), order.end());
    return all;
}

// Commands that are nearly right, of a xorshift generator that begins with the seed.
std::vector<Step> random_steps(u64 x) {
    auto random = [&] { return x ^= x << 13, x ^= x >> 7, x ^= x << 17; };
    std::vector<Step> all;
    for (u32 turn = 0; turn < 200; turn++) {
        const u32 extent = static_cast<u32>(random() % 4), operation = static_cast<u32>(random() % 5), count = static_cast<u32>(random() % 11);
        const u64 block = random() % 80 - 4;
        all.push_back({Step::Begin, 0, 0, 0, 0, 0, 0});
        all.push_back({Step::Submit, 0, extent, operation, block, count, 0});
        all.push_back({Step::Wait, 0, 0, 0, 0, 0, 0});
        all.push_back({Step::End, 0, 0, 0, 0, 0, 0});
    }
    return all;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const u64 seed = argc > 2 ? strtoull(argv[2], nullptr, 0) : 0, blocks = argc > 3 ? strtoull(argv[3], nullptr, 0) : 64;
    const u64 room = argc > 4 ? strtoull(argv[4], nullptr, 0) : 8192;
    const u32 threads = 128;
    u32 *codes;
    ulonglong2 *buffers;
    u64 *wrong;
    const u32 most = !strcmp(what, "rate") ? static_cast<u32>(seed) : threads;
    CHECK(cudaMalloc(&buffers, most * 4096));
    const u32 room_codes = max(most, 1024u);
    CHECK(cudaMalloc(&codes, room_codes * sizeof *codes));
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    CHECK(cudaMemset(codes, 0xEE, room_codes * sizeof *codes));
    const u64 each = (blocks + threads - 1) / threads;
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    u32 used = threads;
    const bool codes_only = !strcmp(what, "codes");
    const std::vector<Step> attacks = codes_only ? random_steps(seed) : steps();
    if (!strcmp(what, "fill")) {
        fill<<<4, threads / 4>>>(seed, blocks, each, buffers, codes);
        CHECK(cudaDeviceSynchronize());
        flush<<<1, 1>>>(codes + threads);
        used = threads + 1;
    } else if (!strcmp(what, "check")) {
        check<<<4, threads / 4>>>(seed, blocks, each, buffers, codes, wrong);
    } else if (!strcmp(what, "warps")) {
        // Lanes of a warp are in two rows of its block.
        warps<<<2, dim3(16, threads / 32)>>>(seed, blocks, buffers, codes, wrong);
        CHECK(cudaDeviceSynchronize());
        targets<<<1, 1>>>(buffers, codes + threads);
        used = threads + 4;
    } else if (!strcmp(what, "attack") || codes_only) {
        Step *tried;
        CHECK(cudaMalloc(&tried, attacks.size() * sizeof *tried));
        CHECK(cudaMemcpy(tried, attacks.data(), attacks.size() * sizeof *tried, cudaMemcpyHostToDevice));
        attack<<<1, 1>>>(tried, static_cast<u32>(attacks.size()), codes, buffers);
        CHECK(cudaDeviceSynchronize());
        if (!codes_only) storm<<<4, 64>>>(200, buffers);
        used = static_cast<u32>(attacks.size());
    } else if (!strcmp(what, "spin")) {
        printf("spins\n");
        fflush(stdout);
        spin<<<1, 32>>>(buffers, codes);
        used = 32;
    } else if (!strcmp(what, "rate")) {
        rate<<<(most + 63) / 64, min(most, 64u)>>>(room, 1, buffers, codes);  // loads the code
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaEventRecord(begin));
        rate<<<(most + 63) / 64, min(most, 64u)>>>(room, static_cast<u32>(blocks), buffers, codes);
        CHECK(cudaEventRecord(end));
        used = most;
    } else {
        printf("FAIL no such thing: %s\n", what);
        return 2;
    }
    CHECK(cudaDeviceSynchronize());
    std::vector<u32> found(used);
    u64 mistakes = 0;
    CHECK(cudaMemcpy(found.data(), codes, used * sizeof *codes, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&mistakes, wrong, sizeof mistakes, cudaMemcpyDeviceToHost));
    if (codes_only) {
        for (u32 at = 0; at < used; at++) {
            if (attacks[at].kind == Step::Submit) printf("%x\n", found[at]);
        }
        return 0;
    }
    if (!strcmp(what, "attack")) {
        for (u32 at = 0; at < used; at++) {
            if (found[at] == attacks[at].expected) continue;
            const Step &step = attacks[at];
            printf("step %u (%d %x %u %llx %x): %x and not %x\n", at, step.kind, step.first, step.operation, step.block, step.count,
                   found[at], step.expected);
            mistakes++;
        }
        printf("attack: %u tried, %llu wrong\n", used, mistakes);
        return mistakes == 0 ? 0 : 4;
    }
    if (!strcmp(what, "rate")) {
        float milliseconds;
        CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        printf("%.0f us, %.0f thousand reads a second; ", milliseconds * 1000, most * blocks / milliseconds);
    }
    for (u32 code : found) {
        if (code != 0) {
            printf("ended with %x\n", code);
            return 3;
        }
    }
    printf("%s: %llu wrong\n", what, mistakes);
    return mistakes == 0 ? 0 : 4;
}
