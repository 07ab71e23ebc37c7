// A cache of pages of 4 KiB, and arrays that lie in files, on the module `storage`: docs/MODULES.md.
//
//   storage::Cache cache;
//   cudaError_t error = storage::make(cache, 1024);        // 4 MiB of this program's own memory
//   kernel<<<...>>>(storage::array<float>(cache, 0, count));   // extent 0 holds so many numbers
//
//   __global__ void kernel(storage::array<float> a) { ... a[i] ... a.set(i, v) ... }
//
// Any thread may ask for any element, in whatever order lanes run. `get_warp` is for all 32 lanes of a warp: what lies on one page
// costs one look. What is written stays in the cache until it is evicted or `flush`ed. Another program, another cache, and reads of
// this header's neighbour see what is on the disk.
//
// How waits end: nobody waits for another thread without a bound, and nothing is held while waiting but a line of the cache and
// the read or write on its way. Who reads and waits too long, or finds all lines of a set in use, reads past the cache. Who writes
// is answered BUSY then.
//
// Errors: each call answers a code (bulkhead_storage.cuh). `a[i]` has no place for one: it reads as zero, and `status` tells.
//
// The guard writes what is called where it is called, so an access is some thousand instructions: have a kernel ask in one place, in
// a loop, rather than in many.
//
// This is the caller's code like any other, and so is its memory: it has no rights of its own.
#pragma once

#include <cuda_runtime.h>

#include <bulkhead_storage.cuh>

namespace storage {

constexpr u32 PAGE_BYTES = BLOCKS_MAX * BLOCK_BYTES, WAYS = 8;
// Reads ahead at a time, of a cache.
constexpr u32 AHEAD = 64;

// What became of calls, since the cache was made.
struct Told {
    u32 status;    // the first error of `a[i]` and of pages that were written back by whoever needed room
    u32 turn;      // where the next read ahead looks for a place
    u64 loaded;    // pages that were read into the cache
    u64 past;      // reads past it
    u64 written;   // pages that were written back
    u64 ahead, dropped;  // reads ahead that were begun, and that were not
};

namespace detail {

// The read of a line that is on its way, and how many blocks its page has.
struct Io {
    u32 ticket, blocks, place, unused;
};

// A line's word: how many use it, what it is to, and which page it holds. So one look finds it, and one addition holds it.
constexpr u64 USERS = (1ull << 20) - 1, PHASE = 3ull << 20, EMPTY = 0, LOADING = 1ull << 20, VALID = 2ull << 20,
              WRITING = 3ull << 20;
// Has been written since it was read. Of a line that loads: nobody waits for it yet, and whoever wants it finishes the read.
constexpr u64 DIRTY = 1ull << 22, BEGUN = DIRTY, USED = 1ull << 23;
constexpr u32 KEY_SHIFT = 24;
// A page's key has 4 bits for the extent.
constexpr u64 PAGES_MAX = 1ull << 36;
constexpr u32 LOCKED = 0x80000000, PIECES = PAGE_BYTES / PIECE_BYTES, MODULE_BUFFERS = 512;
// Turns of whoever reads until it reads past the cache, of whoever writes until it is BUSY, and looks for a free buffer.
constexpr u32 READS_PATIENT = 2000, WRITES_PATIENT = 200000, LOOKS = 8;
constexpr u32 FULL_WARP = 0xFFFFFFFF;

}  // namespace detail

// Pages of the extents that this program opened. A value that is given to kernels: its memory is `make`'s.
struct Cache {
    char *memory;
    u64 sets;

    // In that order lie pages, a piece for each of the module's buffers, what is known of reads, the lines' words, what was told,
    // the lines that are read ahead, and the sets' clocks.
    __host__ __device__ __forceinline__ u64 lines() const { return sets * WAYS; }
    __host__ __device__ __forceinline__ char *start() const {
#ifdef __CUDA_ARCH__
        // So that accesses say so, and the guard need not ask each time.
        __builtin_assume(__isGlobal(memory));
#endif
        return memory;
    }
    __host__ __device__ __forceinline__ char *behind_pages() const { return start() + lines() * PAGE_BYTES; }
    __host__ __device__ __forceinline__ char *behind_io() const {
        return behind_pages() + detail::MODULE_BUFFERS * PIECE_BYTES + lines() * sizeof(detail::Io);
    }
    __device__ __forceinline__ ulonglong2 *page(u32 line) const {
        return reinterpret_cast<ulonglong2 *>(start() + static_cast<u64>(line) * PAGE_BYTES);
    }
    __device__ __forceinline__ ulonglong2 *spare(u32 ticket) const {
        return reinterpret_cast<ulonglong2 *>(behind_pages() + ticket % detail::MODULE_BUFFERS * PIECE_BYTES);
    }
    __device__ __forceinline__ detail::Io &io(u32 line) const {
        return reinterpret_cast<detail::Io *>(behind_pages() + detail::MODULE_BUFFERS * PIECE_BYTES)[line];
    }
    __device__ __forceinline__ u64 *word(u32 line) const { return reinterpret_cast<u64 *>(behind_io()) + line; }
    __host__ __device__ __forceinline__ Told *told() const { return reinterpret_cast<Told *>(behind_io() + lines() * sizeof(u64)); }
    __device__ __forceinline__ u32 *read(u32 place) const { return reinterpret_cast<u32 *>(told() + 1) + place; }
    __device__ __forceinline__ u32 *hand(u32 set) const { return read(AHEAD) + set; }

    static size_t bytes(u32 pages) {
        const size_t lines = pages / WAYS * WAYS;
        return lines * (PAGE_BYTES + sizeof(detail::Io) + sizeof(u64)) + detail::MODULE_BUFFERS * PIECE_BYTES + sizeof(Told) +
               (AHEAD + lines / WAYS) * sizeof(u32);
    }
};

// Makes a cache of so many pages, a multiple of WAYS.
inline cudaError_t make(Cache &cache, u32 pages) {
    if (pages < WAYS || pages % WAYS != 0) return cudaErrorInvalidValue;
    cache.sets = pages / WAYS;
    cudaError_t error = cudaMalloc(&cache.memory, Cache::bytes(pages));
    if (error == cudaSuccess) error = cudaMemset(cache.memory, 0, Cache::bytes(pages));
    return error;
}

// Frees a cache. What was written and not flushed is lost, and reads ahead keep their buffers until the program ends.
inline cudaError_t destroy(Cache &cache) { return cudaFree(cache.memory); }

// What became of calls: `status` is DONE or the first error that had no other place.
inline cudaError_t told(const Cache &cache, Told &told) {
    return cudaMemcpy(&told, cache.told(), sizeof told, cudaMemcpyDeviceToHost);
}

namespace detail {

__device__ __forceinline__ u64 peek(const u64 *word) { return *static_cast<const volatile u64 *>(word); }

__device__ __forceinline__ u64 global(const void *at) { return static_cast<u64>(__cvta_generic_to_global(at)); }

// Adds, and sees what others did before they released the word.
__device__ __forceinline__ u64 add_acquire(u64 *word, u64 value) {
    u64 seen;
    asm volatile("atom.acquire.gpu.global.add.u64 %0, [%1], %2;" : "=l"(seen) : "l"(global(word)), "l"(value) : "memory");
    return seen;
}

// Adds behind all that this thread has done before.
__device__ __forceinline__ void add_release(u64 *word, u64 value) {
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(global(word)), "l"(value) : "memory");
}

__device__ __forceinline__ bool swap(u64 *word, u64 seen, u64 value) {
    u64 found;
    asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(found)
                 : "l"(global(word)), "l"(seen), "l"(value)
                 : "memory");
    return found == seen;
}

__device__ __forceinline__ u32 lane() {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

__device__ __forceinline__ u64 key_of(u32 extent, u64 page) { return static_cast<u64>(extent) << 36 | page; }
__device__ __forceinline__ u32 extent_of(u64 key) { return static_cast<u32>(key >> 36); }
__device__ __forceinline__ u64 block_of(u64 key) { return (key & (PAGES_MAX - 1)) * BLOCKS_MAX; }

__device__ __forceinline__ u32 set_of(const Cache &cache, u64 key) {
    const u64 mixed = key * 0x9E3779B97F4A7C15ull;
    return __umulhi(static_cast<u32>(mixed >> 32), static_cast<u32>(cache.sets));
}

// What is done of a command, in this order. What fails is ended.
constexpr u32 BEGIN = 1, PUT = 2, SUBMIT = 4, WAIT = 8, FETCH = 16, END = 32;
// Waits for a buffer; takes fewer blocks where the extent has no more; looks once whether it has ended.
constexpr u32 PATIENT = 64, SHORTER = 128, ONCE = 256;
constexpr u32 READ_PAGE = BEGIN | SUBMIT | SHORTER | WAIT | FETCH, WRITE_PAGE = BEGIN | PATIENT | PUT | SUBMIT | WAIT | END;

struct Command {
    u64 block;
    ulonglong2 *memory;  // of what is put or fetched, `pieces` from `first` on; null: the buffer's spare piece
    u32 extent, operation, count, ticket, first, pieces, steps;
};

struct Ended {
    u32 code, ticket, count;
};

// Each gate stands here once.
__device__ __forceinline__ Ended run(const Cache &cache, const Command &command) {
    const u32 steps = command.steps;
    u32 code = DONE, ticket = command.ticket, count = command.count, turn = 0;
    if ((steps & BEGIN) != 0) {
#pragma unroll 1
        do {
            if (turn > LOOKS) __nanosleep(200);
            ticket = storage_begin();
            turn++;
        } while (ticket == BUSY && ((steps & PATIENT) != 0 || turn < LOOKS));
        if (ticket >= FAILED) return {ticket, 0, 0};
    }
    ulonglong2 *memory = command.memory != nullptr ? command.memory : cache.spare(ticket);
    if ((steps & PUT) != 0) {
        turn = 0;
#pragma unroll 1
        do {
            code = storage_put(ticket, turn * PIECE_BYTES, memory + turn * (PIECE_BYTES / 16));
            turn++;
        } while (code == DONE && turn < count * (BLOCK_BYTES / PIECE_BYTES));
    }
    if ((steps & SUBMIT) != 0 && code == DONE) {
        count++;
#pragma unroll 1
        do {
            if (command.operation != FLUSH || count > 1) count--;
            code = storage_submit(ticket, command.extent, command.operation, command.block, count);
        } while (code == RANGE && (steps & SHORTER) != 0 && count > 1);
    }
    if ((steps & WAIT) != 0 && code == DONE) {
#pragma unroll 1
        do {
            code = storage_poll(ticket);
        } while (code == BUSY && (steps & ONCE) == 0);
        if (code == BUSY) return {BUSY, ticket, count};
    }
    if ((steps & FETCH) != 0 && code == DONE) {
        turn = 0;
#pragma unroll 1
        do {
            ulonglong2 *to = memory + turn * (PIECE_BYTES / 16);
            const u32 offset = (command.first + turn) * PIECE_BYTES;
            if (offset < count * BLOCK_BYTES) {
                code = storage_fetch(ticket, offset, to);
            } else {
                // What the extent does not have is zero.
                for (u32 at = 0; at < PIECE_BYTES / 16; at++) to[at] = make_ulonglong2(0, 0);
            }
            turn++;
        } while (code == DONE && turn < command.pieces);
    }
    if (code != DONE || (steps & END) != 0) storage_end(ticket);
    return {code, ticket, count};
}

__device__ __forceinline__ Command on_page(const Cache &cache, u64 key, u32 line, u32 operation, u32 steps) {
    return {block_of(key), cache.page(line), extent_of(key), operation, BLOCKS_MAX, 0, 0, PIECES, steps};
}

// What is left of a read that was begun.
__device__ __forceinline__ Command rest_of(const Cache &cache, u64 key, u32 line, u32 steps) {
    Command command = on_page(cache, key, line, READ, steps);
    command.ticket = cache.io(line).ticket;
    command.count = cache.io(line).blocks;
    return command;
}

struct Found {
    // HIT: the caller holds the line. MINE: it holds it, and reads it. STALE: it holds it, and writes it back. WAIT: another does
    // one of these. FULL: all lines of the set are in use. ABSENT: the page has no line.
    enum Kind : u32 { ABSENT, HIT, MINE, STALE, WAIT, FULL } kind;
    u32 line;
    u64 key;     // of the page that is written back
    bool begun;  // whether a read of it is on its way
};

__device__ __forceinline__ void let_go(const Cache &cache, u32 line) { add_release(cache.word(line), 0ull - 1); }

// Looks for a page, and holds its line where it is there.
__device__ __forceinline__ Found look(const Cache &cache, u64 key) {
    const u32 first = set_of(cache, key) * WAYS;
    const u64 *words = cache.word(first);
    u32 way = WAYS;
    u64 word = 0;
    // All at once: one after the other each would wait for the memory.
#pragma unroll
    for (u32 at = 0; at < WAYS; at++) {
        const u64 seen = peek(words + at);
        const bool is = seen >> KEY_SHIFT == key && (seen & PHASE) != EMPTY;
        way = is ? at : way;
        word = is ? seen : word;
    }
    if (way == WAYS) return {Found::ABSENT, 0, key, false};
    const u32 line = first + way;
    u64 *at = cache.word(line);
    if ((word & VALID) != 0) {
        const u64 seen = add_acquire(at, 1);
        if (seen >> KEY_SHIFT == key && (seen & VALID) != 0) {
            if ((seen & USED) == 0) atomicOr(at, USED);
            return {Found::HIT, line, key, false};
        }
        let_go(cache, line);
    } else if ((word & BEGUN) != 0 && swap(at, word, (word & ~BEGUN) + 1)) {
        atomicExch(cache.read(cache.io(line).place), 0);
        return {Found::MINE, line, key, true};
    }
    return {Found::WAIT, line, key, false};
}

// Has the clock find a line for a page. Under the set's lock, for which nobody waits here, and under which nobody waits.
__device__ __forceinline__ Found take(const Cache &cache, u64 key, bool writes_back) {
    const u32 set = set_of(cache, key), first = set * WAYS;
    const u32 hand = atomicOr(cache.hand(set), LOCKED);
    if ((hand & LOCKED) != 0) return {Found::WAIT, 0, key, false};
    __threadfence();
    Found found = {Found::FULL, 0, key, false};
    u32 next = hand;
#pragma unroll 1
    for (u32 line = first; line < first + WAYS; line++) {
        const u64 word = peek(cache.word(line));
        if (word >> KEY_SHIFT == key && (word & PHASE) != EMPTY) found.kind = Found::WAIT;
    }
#pragma unroll 1
    for (u32 turn = 0; turn < 2 * WAYS && found.kind == Found::FULL; turn++) {
        const u32 line = first + (hand + turn) % WAYS;
        u64 *at = cache.word(line);
        const u64 word = peek(at), phase = word & PHASE;
        next = hand + turn + 1;
        if ((word & USERS) != 0 || (phase != EMPTY && phase != VALID)) continue;
        const bool used = phase == VALID && (word & USED) != 0, stale = phase == VALID && (word & DIRTY) != 0;
        if (used) {
            atomicAnd(at, ~USED);
        } else if (!stale || writes_back) {
            const u64 value = stale ? (word & ~DIRTY) - VALID + WRITING + 1 : key << KEY_SHIFT | LOADING | USED | 1;
            if (swap(at, word, value)) found = {stale ? Found::STALE : Found::MINE, line, stale ? word >> KEY_SHIFT : key, false};
        }
    }
    __threadfence();
    atomicExch(cache.hand(set), next % WAYS);
    return found;
}

__device__ __forceinline__ Found find(const Cache &cache, u64 key, bool writes_back) {
    Found found = look(cache, key);
    if (found.kind == Found::ABSENT) found = take(cache, key, writes_back);
    return found;
}

// What has become of a read of a line: the page is there, and its line held; or the line is nobody's again.
__device__ __forceinline__ void loaded(const Cache &cache, u32 line, u32 code) {
    if (code == DONE) {
        add_release(cache.word(line), VALID - LOADING);
        atomicAdd(&cache.told()->loaded, 1ull);
    } else {
        atomicAnd(cache.word(line), USERS);
        let_go(cache, line);
    }
}

// The same of a line that was written back, and is let go.
__device__ __forceinline__ void written_back(const Cache &cache, u32 line, u32 code) {
    if (code == DONE) {
        atomicAdd(&cache.told()->written, 1ull);
    } else {
        atomicOr(cache.word(line), DIRTY);
    }
    add_release(cache.word(line), VALID - WRITING - 1);
}

__device__ __forceinline__ void note(const Cache &cache, u32 code) {
    if (code != DONE) atomicCAS(&cache.told()->status, DONE, code);
}

// How a page is asked for: to be read, past the cache where no line is to be had; to be written, or BUSY; by the first of a warp's lanes
// that want it, which waits for nobody but the device, has not copied what it reads, and is told BUSY otherwise.
enum How : u32 { READS, WRITES, LEADS };

// Where what was asked for is.
struct Held {
    // LINE: there, and it is held. PAST: in the memory that was named, and the command's buffer is held. READ: in that buffer, for a
    // line that is held.
    enum Kind : u32 { NONE, LINE, PAST, READ } kind;
    u32 code, line, ticket, count;
};

// What is read of a page where it has no line: pieces of these blocks.
struct Past {
    ulonglong2 *memory;
    u32 block, count, first, pieces;
};

// Finds a page, and reads it first where nobody has.
__device__ __noinline__ Held access(Cache cache, u64 key, Past past, How how) {
    const u32 patience = how == WRITES ? WRITES_PATIENT : how == READS ? READS_PATIENT : 1;
    bool goes_past = false;
#pragma unroll 1
    for (u32 turn = 0; turn < patience; turn++) {
        const Found found = find(cache, key, how != LEADS);
        if (found.kind == Found::HIT) return {Held::LINE, DONE, found.line, 0, 0};
        goes_past = how == READS && (goes_past || found.kind == Found::FULL || turn + 1 == patience);
        Command command = {};
        if (found.kind == Found::MINE) {
            // Whoever leads waits for no buffer, since other lanes hold some.
            const u32 end = how == LEADS ? 0 : PATIENT | FETCH | END;
            command = on_page(cache, key, found.line, READ, (BEGIN | SUBMIT | SHORTER | WAIT) | end);
            if (found.begun) command = rest_of(cache, key, found.line, WAIT | end);
        } else if (found.kind == Found::STALE) {
            command = on_page(cache, found.key, found.line, WRITE, WRITE_PAGE);
            command.count = cache.io(found.line).blocks;
        } else if (goes_past) {
            command = {block_of(key) + past.block, past.memory, extent_of(key), READ, past.count, 0, past.first, past.pieces,
                       READ_PAGE | PATIENT};
        } else {
            if (how != LEADS) __nanosleep(turn < 32 ? 50 : 1000);
            continue;
        }
        const Ended ended = run(cache, command);
        if (found.kind == Found::MINE) {
            if (ended.code == DONE) cache.io(found.line).blocks = ended.count;
            if (how == LEADS && ended.code == DONE) return {Held::READ, DONE, found.line, ended.ticket, ended.count};
            loaded(cache, found.line, ended.code);
            return {ended.code == DONE ? Held::LINE : Held::NONE, ended.code, found.line, 0, 0};
        }
        if (found.kind != Found::STALE) {
            atomicAdd(&cache.told()->past, 1ull);
            return {ended.code == DONE ? Held::PAST : Held::NONE, ended.code, 0, ended.ticket, ended.count};
        }
        written_back(cache, found.line, ended.code);
        note(cache, ended.code);
        if (ended.code != DONE && how == WRITES) return {Held::NONE, ended.code, 0, 0, 0};
        goes_past = ended.code != DONE;
    }
    return {Held::NONE, BUSY, 0, 0, 0};
}

// Copies into its line what a lane has read, by all lanes.
__device__ __forceinline__ void copy_warp(const Cache &cache, Held &held, u32 by) {
    const u32 line = __shfl_sync(FULL_WARP, held.line, by), ticket = __shfl_sync(FULL_WARP, held.ticket, by);
    const u32 count = __shfl_sync(FULL_WARP, held.count, by);
    u32 code = DONE;
#pragma unroll 1
    for (u32 piece = lane(); piece < PIECES; piece += 32) {
        ulonglong2 *to = cache.page(line) + piece * (PIECE_BYTES / 16);
        u32 fetched = DONE;
        if (piece * PIECE_BYTES < count * BLOCK_BYTES) {
            fetched = storage_fetch(ticket, piece * PIECE_BYTES, to);
        } else {
            for (u32 at = 0; at < PIECE_BYTES / 16; at++) to[at] = make_ulonglong2(0, 0);
        }
        if (fetched != DONE) code = fetched;
    }
    const u32 failed = __ballot_sync(FULL_WARP, code != DONE);
    code = __shfl_sync(FULL_WARP, code, failed != 0 ? __ffs(failed) - 1 : 0);
    // What all lanes copied is seen by whoever sees what this one stores.
    __threadfence();
    __syncwarp();
    if (lane() == by) {
        storage_end(ticket);
        loaded(cache, line, code);
        held.kind = code == DONE ? Held::LINE : Held::NONE;
        held.code = code;
    }
}

// Finds the pages that the lanes of a warp want, each of which is asked for once. All reads are on their way at once, and all lanes
// copy. `use` is told where a lane's page is, and `last` which line is about to be let go. Where that was not to be had without
// waiting for others, the lanes ask once more, now that they hold nothing: each for itself, or the first for all.
template <class Use, class Last>
__device__ __forceinline__ u32 with_warp(const Cache &cache, u64 key, const Past &past, bool wanted, How how, bool alone, Use use,
                                         Last last) {
    const u32 same = __match_any_sync(FULL_WARP, wanted ? key : ~0ull), leader = __ffs(same) - 1;
    u32 code = BUSY;
#pragma unroll 1
    for (u32 turn = 0; turn < 2; turn++) {
        const bool shared = turn == 0 || !alone, asks = wanted && code == BUSY && (!shared || leader == lane());
        Held held = {Held::NONE, BUSY, 0, 0, 0};
        if (asks) held = access(cache, key, past, turn == 0 ? LEADS : how);
        __syncwarp();
        u32 left = __ballot_sync(FULL_WARP, held.kind == Held::READ);
#pragma unroll 1
        for (; left != 0; left &= left - 1) copy_warp(cache, held, __ffs(left) - 1);
        __syncwarp();
        Held found = held;
        found.kind = static_cast<Held::Kind>(__shfl_sync(FULL_WARP, static_cast<u32>(held.kind), leader));
        found.code = __shfl_sync(FULL_WARP, held.code, leader);
        found.line = __shfl_sync(FULL_WARP, held.line, leader);
        if (wanted && code == BUSY) {
            if (!shared) found = held;
            code = found.code;
            if (found.kind != Held::NONE) use(found);
        }
        __syncwarp();
        if (asks && held.kind == Held::LINE) {
            last(held.line);
            let_go(cache, held.line);
        }
        if (__all_sync(FULL_WARP, !wanted || code != BUSY)) break;
    }
    return wanted ? code : DONE;
}

__device__ __forceinline__ bool is_begun(u64 word) { return (word & PHASE) == LOADING && (word & BEGUN) != 0; }

// Ends the use of a place for reads ahead, if it is still this line's.
__device__ __forceinline__ void settled(const Cache &cache, u32 line, u32 code) {
    atomicExch(cache.read(cache.io(line).place), 0);
    loaded(cache, line, code);
    if (code == DONE) let_go(cache, line);
}

}  // namespace detail

// Begins to read a page of an extent, and does not wait. Whether the page is there or on its way: where there are AHEAD such reads, or
// no buffer or line is free, it is not.
__device__ __noinline__ bool prefetch(Cache cache, u32 extent, u64 page) {
    using namespace detail;
    if (extent >= 16 || page >= PAGES_MAX) return false;
    const u64 key = key_of(extent, page);
    const u32 first = set_of(cache, key) * WAYS;
#pragma unroll 1
    for (u32 line = first; line < first + WAYS; line++) {
        const u64 word = peek(cache.word(line));
        if (word >> KEY_SHIFT == key && (word & PHASE) != EMPTY) return true;
    }
    const u32 place = atomicAdd(&cache.told()->turn, 1) % AHEAD;
    u32 line = 0;
    // First what had the place before is taken over, if it has ended. Then there is another read.
#pragma unroll 1
    for (u32 turn = 0; turn < 2; turn++) {
        const u32 before = *static_cast<volatile u32 *>(cache.read(place));
        Command command = {};
        bool goes = false;
        if (before != 0 && before != LOCKED) {
            line = before - 1;
            const u64 word = peek(cache.word(line));
            goes = is_begun(word) && swap(cache.word(line), word, (word & ~BEGUN) + 1);
            if (goes) command = rest_of(cache, word >> KEY_SHIFT, line, WAIT | ONCE | FETCH | END);
        } else if (before == 0 && atomicCAS(cache.read(place), 0, LOCKED) == 0) {
            const Found found = take(cache, key, false);
            line = found.line;
            goes = found.kind == Found::MINE;
            if (goes) command = on_page(cache, key, line, READ, BEGIN | SUBMIT | SHORTER);
            else atomicExch(cache.read(place), 0);
        }
        if (!goes) break;
        const Ended ended = run(cache, command);
        if (before != 0) {
            if (ended.code == BUSY) {
                add_release(cache.word(line), BEGUN - 1);
                break;
            }
            settled(cache, line, ended.code);
        } else if (ended.code != DONE) {
            loaded(cache, line, ended.code);
            atomicExch(cache.read(place), 0);
            break;
        } else {
            cache.io(line) = {ended.ticket, ended.count, place, 0};
            atomicExch(cache.read(place), line + 1);
            atomicAdd(&cache.told()->ahead, 1ull);
            add_release(cache.word(line), BEGUN - 1);
            return true;
        }
    }
    atomicAdd(&cache.told()->dropped, 1ull);
    return false;
}

// Writes back the lines `first`, `first + step` and so on, and ends reads ahead; then all of the extent is made durable, where that is
// wanted. What other threads write meanwhile may stay.
__device__ __noinline__ u32 write_back(Cache cache, u32 first, u32 step, bool flushes, u32 extent) {
    using namespace detail;
    u32 code = DONE, turn = 0;
    bool done = false;
#pragma unroll 1
    for (u32 line = first; !done;) {
        Command command = {};
        u64 word = 0, to = 0;
        if (line >= cache.lines()) {
            done = true;
            if (!flushes || code != DONE) break;
            command = {0, nullptr, extent, FLUSH, 0, 0, 0, 0, BEGIN | PATIENT | SUBMIT | WAIT | END};
        } else {
            word = peek(cache.word(line));
            const bool stale = (word & PHASE) == VALID && (word & DIRTY) != 0;
            if (is_begun(word)) {
                to = (word & ~BEGUN) + 1;
                command = rest_of(cache, word >> KEY_SHIFT, line, WAIT | FETCH | END);
            } else if (stale) {
                to = (word & ~DIRTY) - VALID + WRITING + 1;
                command = on_page(cache, word >> KEY_SHIFT, line, WRITE, WRITE_PAGE);
                command.count = cache.io(line).blocks;
            }
            if (to == 0 || !swap(cache.word(line), word, to)) {
                // Where somebody else writes it back, what was written before this call may be part of that, or not.
                if (to == 0 && (word & PHASE) != WRITING) {
                    line += step;
                    turn = 0;
                } else if (++turn > WRITES_PATIENT) {
                    return BUSY;
                } else if (to == 0) {
                    __nanosleep(1000);
                }
                continue;
            }
            // What was read of it before is this line's no more.
            if (is_begun(word)) command.ticket = cache.io(line).ticket, command.count = cache.io(line).blocks;
            else command.count = cache.io(line).blocks;
        }
        const Ended ended = run(cache, command);
        if (done) {
            code = ended.code;
        } else if (is_begun(word)) {
            settled(cache, line, ended.code);
        } else {
            written_back(cache, line, ended.code);
            if (ended.code != DONE) {
                code = ended.code;
                line += step;
            }
        }
    }
    return code;
}

// All that this block's threads and kernels before have written to an extent is durable when this answers DONE. For all threads
// of a block, which answer the same.
__device__ __forceinline__ u32 flush_block(Cache cache, u32 extent) {
    __shared__ u32 answer;
    const u32 own = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    if (own == 0) answer = DONE;
#pragma unroll 1
    for (u32 turn = 0; turn < 2; turn++) {
        __syncthreads();
        // First all write back, then one thread flushes.
        const bool flushes = turn == 1;
        u32 code = DONE;
        if (!flushes || (own == 0 && answer == DONE)) {
            code = write_back(cache, flushes ? ~0u : own, threads, flushes, extent);
        }
        if (code != DONE) atomicCAS(&answer, DONE, code);
    }
    __syncthreads();
    const u32 all = answer;
    __syncthreads();
    return all;
}

// Copies a page to `to`, a multiple of 16 in global memory, by a whole warp. What a shorter last page does not have is zero.
__device__ __forceinline__ u32 read_page_warp(Cache cache, u32 extent, u64 page, void *to) {
    using namespace detail;
    if (extent >= 16 || page >= PAGES_MAX) return extent >= 16 ? NOT_OPEN : RANGE;
    if (!__all_sync(FULL_WARP, is_reached(to))) return TARGET;
    const u64 key = key_of(extent, page);
    const Past past = {static_cast<ulonglong2 *>(to), 0, BLOCKS_MAX, 0, PIECES};
    return with_warp(
        cache, key, past, true, READS, false,
        [&](const Held &held) {
            if (held.kind == Held::LINE) {
                const ulonglong2 *from = cache.page(held.line);
#pragma unroll
                for (u32 at = 0; at < PAGE_BYTES / 16; at += 32) static_cast<ulonglong2 *>(to)[at + lane()] = from[at + lane()];
            } else if (lane() == 0) {
                storage_end(held.ticket);
            }
        },
        [](u32) {});
}

// `count` elements that an extent begins with. A value that is given to kernels.
template <class T> class array {
    static_assert(sizeof(T) <= PIECE_BYTES && (sizeof(T) & (sizeof(T) - 1)) == 0, "an element has 1, 2, 4, 8, 16, 32 or 64 bytes");

    Cache cache_;
    u32 extent_;
    u64 count_;

    __device__ __forceinline__ T *element(u32 line, u64 at) const {
        return reinterpret_cast<T *>(cache_.page(line)) + at % (PAGE_BYTES / sizeof(T));
    }
    __device__ __forceinline__ u64 key(u64 at) const { return detail::key_of(extent_, at / (PAGE_BYTES / sizeof(T))); }

  public:
    __host__ __device__ array(const Cache &cache, u32 extent, u64 count) : cache_(cache), extent_(extent), count_(count) {}

    __host__ __device__ u64 size() const { return count_; }

    // Whether the array has that element, and the library such an extent.
    __device__ __forceinline__ u32 check(u64 at) const {
        if (extent_ >= 16) return NOT_OPEN;
        return at < count_ && at / (PAGE_BYTES / sizeof(T)) < detail::PAGES_MAX ? DONE : RANGE;
    }

  private:
    // Where an element is read that has no line.
    __device__ __forceinline__ detail::Past past(u64 at) const {
        const u64 byte = at * sizeof(T);
        const u32 block = static_cast<u32>(byte / BLOCK_BYTES % BLOCKS_MAX), piece = static_cast<u32>(byte % BLOCK_BYTES / PIECE_BYTES);
        return {nullptr, block, 1, piece, 1};
    }

    __device__ __forceinline__ u32 take(const detail::Held &held, u64 at, T &value) const {
        if (held.kind == detail::Held::LINE) value = *element(held.line, at);
        if (held.kind == detail::Held::PAST) {
            const char *piece = reinterpret_cast<const char *>(cache_.spare(held.ticket));
            value = *reinterpret_cast<const T *>(piece + at * sizeof(T) % PIECE_BYTES);
            storage_end(held.ticket);
        }
        return held.code;
    }

    // Behind the value: who writes the page back takes the mark away before it reads.
    __device__ __forceinline__ void mark(u32 line) const {
        __threadfence();
        atomicOr(cache_.word(line), detail::DIRTY);
    }

  public:
    // For any thread.
    __device__ __forceinline__ u32 get(u64 at, T &value) const {
        u32 code = check(at);
        if (code != DONE) return code;
        const detail::Held held = detail::access(cache_, key(at), past(at), detail::READS);
        code = take(held, at, value);
        if (held.kind == detail::Held::LINE) detail::let_go(cache_, held.line);
        return code;
    }

    __device__ __forceinline__ u32 set(u64 at, const T &value) const {
        const u32 code = check(at);
        if (code != DONE) return code;
        const detail::Held held = detail::access(cache_, key(at), {}, detail::WRITES);
        if (held.code != DONE) return held.code;
        *element(held.line, at) = value;
        mark(held.line);
        detail::let_go(cache_, held.line);
        return DONE;
    }

    // For all lanes of a warp: lanes that do not want anything say so.
    __device__ __forceinline__ u32 get_warp(u64 at, T &value, bool wanted = true) const {
        const u32 checked = wanted ? check(at) : DONE;
        const bool asks = wanted && checked == DONE;
        const u32 code = detail::with_warp(
            cache_, key(at), past(at), asks, detail::READS, true, [&](const detail::Held &held) { take(held, at, value); }, [](u32) {});
        return asks ? code : checked;
    }

    __device__ __forceinline__ u32 set_warp(u64 at, const T &value, bool wanted = true) const {
        const u32 checked = wanted ? check(at) : DONE;
        const bool asks = wanted && checked == DONE;
        const u32 code = detail::with_warp(
            cache_, key(at), {}, asks, detail::WRITES, true,
            [&](const detail::Held &held) {
                *element(held.line, at) = value;
                __threadfence();
            },
            [&](u32 line) { mark(line); });
        return asks ? code : checked;
    }

    // Begins to read the page of an element.
    __device__ __forceinline__ bool prefetch(u64 at) const {
        return check(at) == DONE && storage::prefetch(cache_, extent_, at / (PAGE_BYTES / sizeof(T)));
    }

    // An element that reads and writes as a variable does. `told` has the first error.
    class Element {
        const array &of_;
        u64 at_;

      public:
        __device__ __forceinline__ Element(const array &of, u64 at) : of_(of), at_(at) {}
        __device__ __forceinline__ operator T() const {
            T value = {};
            detail::note(of_.cache_, of_.get(at_, value));
            return value;
        }
        __device__ __forceinline__ const Element &operator=(const T &value) const {
            detail::note(of_.cache_, of_.set(at_, value));
            return *this;
        }
        __device__ __forceinline__ const Element &operator=(const Element &from) const { return *this = static_cast<T>(from); }
    };

    __device__ __forceinline__ Element operator[](u64 at) const { return Element(*this, at); }
};

}  // namespace storage
