// How fast kernels read and write, and whether what they read is right: fio's matrix, and AGILE's sweep of computing and reading.
//
//   workload run ORDER BYTES DEPTH TURNS WRITES CHECK BLOCKS
//       ORDER is random or sequential; transfers of BYTES, up to 4096 by DEPTH threads and above that, to 1 MiB, by DEPTH warps; TURNS
//       by each; WRITES in 100 of them write; with CHECK 1 all that is read is compared. Extent 0 has BLOCKS blocks that
//       `workload fill` has filled: writes write what is there, so that one in a wrong place is seen.
//   workload fill BLOCKS
//   workload sequence ROUNDS
//       In each round 64 threads write their 8 blocks of extent 0 full of its number, and a flush ends it: then that is told.
//   workload overlap WARPS PAGES BLOCKS
//       Each warp reads so many pages and computes on each, for some parts of the time that reading takes: one after the other, and with
//       the next page on its way meanwhile.
#include "cached.cuh"

constexpr u64 SEED = 42;
constexpr u32 PIECE_MAX = 1 << 20;

struct Work {
    u64 blocks, count, commands;  // of the extent, and of a transfer; how many transfers the extent has
    u32 turns, writes;
    bool random, checks;
    u64 *memory;
    Wrong *wrong;
};

__device__ u64 place(const Work &work, u64 worker, u64 workers, u32 turn, u64 &x) {
    const u64 at = work.random ? next(x) : worker + turn * workers;
    return at % work.commands * work.count;
}

// A thread's transfers, of one command each.
__global__ void small(Work work) {
    const u64 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    u64 x = (thread + 1) * 0x9E3779B97F4A7C15ull;
    u64 *mine = work.memory + thread * PAGE_WORDS;
    for (u32 turn = 0; turn < work.turns; turn++) {
        const u64 block = place(work, thread, threads, turn, x);
        const bool writes = next(x) % 100 < work.writes;
        const u32 words = static_cast<u32>(work.count) * 64;
        for (u32 at = 0; writes && at < words; at++) mine[at] = word(SEED, block * 64 + at);
        u32 code = storage::DONE;
        if (writes) code = storage::write(0, block, static_cast<u32>(work.count), mine);
        else code = storage::read(0, block, static_cast<u32>(work.count), mine);
        compare(work.wrong, code, 0, 0);
        for (u32 at = 0; work.checks && !writes && at < words; at++) {
            compare(work.wrong, 0, mine[at], word(SEED, block * 64 + at));
        }
    }
}

// A warp's, of many.
__global__ void large(Work work) {
    const u64 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    const u32 lane = threadIdx.x % 32;
    u64 x = (warp + 1) * 0x9E3779B97F4A7C15ull;
    u64 *mine = work.memory + warp * work.count * 64;
    for (u32 turn = 0; turn < work.turns; turn++) {
        const u64 block = place(work, warp, warps, turn, x);
        const bool writes = next(x) % 100 < work.writes;
        for (u64 at = lane; writes && at < work.count * 64; at += 32) mine[at] = word(SEED, block * 64 + at);
        __syncwarp();
        u32 code = storage::DONE;
        if (writes) code = storage::write_warp(0, block, work.count, mine);
        else code = storage::read_warp(0, block, work.count, mine);
        compare(work.wrong, code, 0, 0);
        __syncwarp();
        for (u64 at = lane; work.checks && !writes && at < work.count * 64; at += 32) {
            compare(work.wrong, 0, mine[at], word(SEED, block * 64 + at));
        }
        __syncwarp();
    }
}

__global__ void stamp(u64 number, u64 *memory, Wrong *wrong) {
    u64 *mine = memory + threadIdx.x * PAGE_WORDS;
    for (u32 at = 0; at < PAGE_WORDS; at++) mine[at] = number;
    compare(wrong, storage::write(0, threadIdx.x * storage::BLOCKS_MAX, storage::BLOCKS_MAX, mine), 0, 0);
}

__global__ void flush(Wrong *wrong) { compare(wrong, storage::flush(0), 0, 0); }

struct Overlap {
    u64 pages;  // of the extent
    u32 turns, rounds;
    bool reads, ahead;
    u64 *memory;
    Wrong *wrong;
};

__device__ u32 begin_page(const Overlap &work, u64 &x) {
    u32 ticket = storage::DONE;
    const u64 page = next(x) % work.pages;
    if (threadIdx.x % 32 != 0) return ticket;
    const u32 code = storage::read_async(0, page * storage::BLOCKS_MAX, storage::BLOCKS_MAX, ticket);
    return code == storage::DONE ? ticket : code;
}

__global__ void overlap(Overlap work) {
    const u64 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const u32 lane = threadIdx.x % 32;
    u64 x = (warp + 1) * 0x9E3779B97F4A7C15ull, sum = 0;
    u64 *mine = work.memory + warp * PAGE_WORDS;
    u32 ticket = 0, code = storage::DONE;
    // One place each that begins and that finishes: gates' bodies stand where they are called.
    for (u32 turn = 0; turn <= work.turns && code == storage::DONE; turn++) {
        const bool computes = work.ahead ? turn > 0 : turn < work.turns;
        if (work.reads && work.ahead && turn > 0) code = storage::finish_warp(ticket, mine);
        if (work.reads && turn < work.turns && code == storage::DONE) ticket = begin_page(work, x);
        if (work.reads && !work.ahead && turn < work.turns) code = storage::finish_warp(ticket, mine);
        __syncwarp();
        for (u32 round = 0; computes && round < work.rounds; round++) {
            sum = (sum ^ mine[(round * 7 + turn + lane) % PAGE_WORDS]) * 0x9E3779B97F4A7C15ull + round;
        }
        __syncwarp();
    }
    compare(work.wrong, code, 0, 0);
    mine[lane] = sum;
}

// Milliseconds of a launch.
template <class Launch> static double timed(Launch launch) {
    cudaEvent_t begin, end;
    float milliseconds = 0;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(begin));
    launch();
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(end));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    return milliseconds;
}

static void run_work(Work work, u32 depth) {
    const bool is_small = work.count <= storage::BLOCKS_MAX;
    const u32 threads = is_small ? depth : depth * 32, block = is_small ? min(threads, 64u) : 32;
    auto launch = [&] {
        if (is_small) small<<<(threads + block - 1) / block, block>>>(work);
        else large<<<(threads + block - 1) / block, block>>>(work);
    };
    const u32 turns = work.turns;
    // The first loads the code.
    work.turns = 1;
    timed(launch);
    work.turns = turns;
    const double milliseconds = timed(launch);
    const double transfers = 1.0 * depth * turns;
    printf("%s %llu B x %u, %u%% writes: %.1f thousand a second, %.1f MB/s\n", work.random ? "random" : "sequential",
           work.count * storage::BLOCK_BYTES, depth, work.writes, transfers / milliseconds,
           transfers * static_cast<double>(work.count) * storage::BLOCK_BYTES / milliseconds / 1000);
}

// Rounds until the module ends.
static void run_sequence(u64 rounds, u64 *memory, Wrong *wrong) {
    Wrong mistakes = {};
    for (u64 number = 1; number <= rounds && mistakes.code == storage::DONE; number++) {
        stamp<<<1, 64>>>(number, memory, wrong);
        flush<<<1, 1>>>(wrong);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(&mistakes, wrong, sizeof mistakes, cudaMemcpyDeviceToHost));
        if (mistakes.code != storage::DONE) return;
        printf("flushed %llu\n", number);
        fflush(stdout);
    }
}

static void run_overlap(Overlap work, u32 warps) {
    auto launch = [&] { overlap<<<warps, 32>>>(work); };
    auto best = [&](bool reads, bool ahead, u32 rounds) {
        work.reads = reads, work.ahead = ahead, work.rounds = rounds;
        double least = timed(launch);
        for (u32 turn = 0; turn < 2; turn++) least = min(least, timed(launch));
        return least;
    };
    const double reading = best(true, false, 0), some = best(false, false, 1000), none = best(false, false, 0);
    const double round = max(some - none, 1e-6) / 1000;
    for (double ratio : {0.25, 0.5, 1.0, 2.0, 4.0}) {
        const u32 rounds = static_cast<u32>(min(ratio * reading / round, 1e8));
        const double computing = best(false, false, rounds), alone = best(true, false, rounds), ahead = best(true, true, rounds);
        printf("computing/reading %.2f: computing %.2f ms, reading %.2f, one after the other %.2f, overlapped %.2f: %.2f times\n",
               computing / reading, computing, reading, alone, ahead, alone / ahead);
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    auto number = [&](int at) { return at < argc ? strtoull(argv[at], nullptr, 0) : 0; };
    Wrong *wrong, mistakes;
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    u64 *memory;
    if (!strcmp(what, "run") && argc == 9) {
        const u64 bytes = number(3), depth = number(4), count = bytes / storage::BLOCK_BYTES, blocks = number(8);
        if (bytes == 0 || bytes % storage::BLOCK_BYTES != 0 || bytes > PIECE_MAX || depth == 0 || blocks < count) {
            printf("FAIL transfers have 512 bytes to 1 MiB, in whole blocks\n");
            return 2;
        }
        CHECK(cudaMalloc(&memory, depth * max(bytes, static_cast<u64>(storage::PAGE_BYTES)) + 63 * storage::PAGE_BYTES));
        run_work({blocks, count, blocks / count, static_cast<u32>(number(5)), static_cast<u32>(number(6)), !strcmp(argv[2], "random"),
                  number(7) != 0, memory, wrong}, static_cast<u32>(depth));
    } else if (!strcmp(what, "fill") && argc == 3) {
        const u64 blocks = number(2), count = min(blocks, 256ull);
        CHECK(cudaMalloc(&memory, count * storage::BLOCK_BYTES * 2));
        const u64 commands = blocks / count;
        large<<<1, 64>>>({blocks, count, commands, static_cast<u32>((commands + 1) / 2), 100, false, false, memory, wrong});
        CHECK(cudaDeviceSynchronize());
        flush<<<1, 1>>>(wrong);
    } else if (!strcmp(what, "sequence") && argc == 3) {
        CHECK(cudaMalloc(&memory, 64 * storage::PAGE_BYTES));
        run_sequence(number(2), memory, wrong);
    } else if (!strcmp(what, "overlap") && argc == 5) {
        const u32 warps = static_cast<u32>(number(2));
        CHECK(cudaMalloc(&memory, static_cast<u64>(warps) * storage::PAGE_BYTES));
        CHECK(cudaMemset(memory, 0, static_cast<u64>(warps) * storage::PAGE_BYTES));
        run_overlap({number(4) / 8, static_cast<u32>(number(3)), 0, false, false, memory, wrong}, warps);
    } else {
        printf("FAIL see the head of workload.cu\n");
        return 2;
    }
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&mistakes, wrong, sizeof mistakes, cudaMemcpyDeviceToHost));
    if (mistakes.code != storage::DONE) {
        printf("ended with %x\n", mistakes.code);
        return 3;
    }
    printf("%s: %llu wrong\n", what, mistakes.values);
    return mistakes.values == 0 ? 0 : 4;
}
