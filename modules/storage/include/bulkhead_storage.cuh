// Block storage for kernels, on the gates of the module `storage`: docs/MODULES.md.
//
//   nvcc -gencode arch=compute_75,code=compute_75 -I modules/storage/include -o app app.cu
//   bulkhead run --module storage=read:data,write:scratch -- ./app
//
// `extent` counts what was asked for: 0 is read:data, 1 is write:scratch. Blocks have 512 bytes and are counted from the extent's
// first; a command moves at most 8. Everything answers DONE, one of the module's codes, or FAILED and an NVMe status.
//
// Codes: NOT_OPEN (not opened, or the module has ended), REVOKED, RANGE (a block outside of the extent), RIGHTS (no such operation,
// or not allowed), TARGET (memory that is not global, or lies at no multiple of 16), LENGTH (not 1 to 8 blocks). FAILED and 0x280 is
// a write, 0x281 a read that the store did not do (NVMe: status type 2, codes 80h and 81h).
//
// Each command takes one of the program's 512 buffers until `finish` or `written`: who begins more, and ends none, waits for ever.
//
// This is the caller's code like any other: it has no rights of its own. What waits, waits here, where the program can be ended.
#pragma once

extern "C" {
__device__ unsigned storage_begin();
__device__ unsigned storage_put(unsigned ticket, unsigned offset, const ulonglong2 *from);
__device__ unsigned storage_submit(unsigned ticket, unsigned extent, unsigned operation, unsigned long long block,
                                   unsigned count);
__device__ unsigned storage_poll(unsigned ticket);
__device__ unsigned storage_fetch(unsigned ticket, unsigned offset, ulonglong2 *to);
__device__ unsigned storage_end(unsigned ticket);
}

namespace storage {

using u32 = unsigned;
using u64 = unsigned long long;

constexpr u32 DONE = 0, NOT_OPEN = 0xFFFFFFF0, REVOKED = 0xFFFFFFF1, RANGE = 0xFFFFFFF2, RIGHTS = 0xFFFFFFF3,
              TARGET = 0xFFFFFFF4, LENGTH = 0xFFFFFFF5, BUSY = 0xFFFFFFF6, FAILED = 0x80000000;
constexpr u32 BLOCK_BYTES = 512, BLOCKS_MAX = 8, PIECE_BYTES = 64;
constexpr u32 FLUSH = 0, WRITE = 1, READ = 2;

// What a code says, for people.
inline const char *meaning(u32 code) {
    switch (code) {
        case DONE: return "DONE";
        case NOT_OPEN: return "NOT_OPEN: no such extent, it is not opened (`bulkhead run --module storage=...`), or the module has ended";
        case REVOKED: return "REVOKED: what was opened was taken back";
        case RANGE: return "RANGE: blocks outside of the extent";
        case RIGHTS: return "RIGHTS: no such operation, or the extent may only be read";
        case TARGET: return "TARGET: the memory is not global, or not at a multiple of 16";
        case LENGTH: return "LENGTH: a command moves 1 to 8 blocks";
        case BUSY: return "BUSY: ask again";
        default: return (code & FAILED) != 0 ? "FAILED: the store did not do it; the lower bits are an NVMe status" : "no code: a ticket or a number";
    }
}

// Whether gates reach memory: it is global, and lies at a multiple of 16.
__device__ __forceinline__ bool is_reached(const void *memory) {
    return __isGlobal(memory) && reinterpret_cast<u64>(memory) % 16 == 0;
}

// A buffer of the module's, for one command. Answers its ticket, or a code, which is FAILED or more.
__device__ __forceinline__ u32 begin() {
    u32 ticket;
    while ((ticket = storage_begin()) == BUSY) __nanosleep(200);
    return ticket;
}

// Waits for a command's end.
__device__ __forceinline__ u32 wait(u32 ticket) {
    u32 code;
    while ((code = storage_poll(ticket)) == BUSY) {}
    return code;
}

// Begins to read; `ticket` is for `finish`.
__device__ __forceinline__ u32 read_async(u32 extent, u64 block, u32 count, u32 &ticket) {
    ticket = begin();
    if (ticket >= FAILED) return ticket;
    const u32 code = storage_submit(ticket, extent, READ, block, count);
    if (code != DONE) storage_end(ticket);
    return code;
}

// Waits for what was begun to be read, and copies it to `to`, which lies at a multiple of 16.
__device__ __forceinline__ u32 finish(u32 ticket, u32 count, void *to) {
    u32 code = wait(ticket);
    if (count > BLOCKS_MAX) code = LENGTH;
    if (!is_reached(to)) code = TARGET;
    for (u32 at = 0; code == DONE && at < count * BLOCK_BYTES; at += PIECE_BYTES) {
        code = storage_fetch(ticket, at, reinterpret_cast<ulonglong2 *>(static_cast<char *>(to) + at));
    }
    storage_end(ticket);
    return code;
}

// Begins to write what lies at `from`, a multiple of 16; that may change when this returns. `ticket` is for `written`.
__device__ __forceinline__ u32 write_async(u32 extent, u64 block, u32 count, const void *from, u32 &ticket) {
    ticket = begin();
    if (ticket >= FAILED) return ticket;
    u32 code = count > BLOCKS_MAX ? LENGTH : is_reached(from) ? DONE : TARGET;
    for (u32 at = 0; code == DONE && at < count * BLOCK_BYTES; at += PIECE_BYTES) {
        code = storage_put(ticket, at, reinterpret_cast<const ulonglong2 *>(static_cast<const char *>(from) + at));
    }
    if (code == DONE) code = storage_submit(ticket, extent, WRITE, block, count);
    if (code != DONE) storage_end(ticket);
    return code;
}

// Waits for the end of what was begun to be written.
__device__ __forceinline__ u32 written(u32 ticket) {
    const u32 code = wait(ticket);
    storage_end(ticket);
    return code;
}

__device__ __forceinline__ u32 read(u32 extent, u64 block, u32 count, void *to) {
    u32 ticket;
    const u32 code = read_async(extent, block, count, ticket);
    return code == DONE ? finish(ticket, count, to) : code;
}

__device__ __forceinline__ u32 write(u32 extent, u64 block, u32 count, const void *from) {
    u32 ticket;
    const u32 code = write_async(extent, block, count, from, ticket);
    return code == DONE ? written(ticket) : code;
}

// All that was written to the extent's namespace, and has ended, is durable when this answers DONE.
__device__ __forceinline__ u32 flush(u32 extent) {
    const u32 ticket = begin();
    if (ticket >= FAILED) return ticket;
    const u32 code = storage_submit(ticket, extent, FLUSH, 0, 0);
    if (code != DONE) {
        storage_end(ticket);
        return code;
    }
    return written(ticket);
}

// What one lane of a warp has begun to read, 8 blocks, is waited for by that lane, 0, and copied by all. `ticket` is lane 0's, or a code
// that is FAILED or more, where nothing was begun. All lanes answer the same.
__device__ __forceinline__ u32 finish_warp(u32 ticket, void *to) {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    ticket = __shfl_sync(0xFFFFFFFF, ticket, 0);
    if (ticket >= FAILED) return ticket;
    u32 code = __all_sync(0xFFFFFFFF, is_reached(to)) ? DONE : TARGET;
    // Also where nothing can be copied: a buffer whose command is on its way cannot be given back.
    const u32 ended = __shfl_sync(0xFFFFFFFF, lane == 0 ? wait(ticket) : DONE, 0);
    if (code == DONE) code = ended;
    for (u32 at = lane * PIECE_BYTES; code == DONE && at < BLOCKS_MAX * BLOCK_BYTES; at += 32 * PIECE_BYTES) {
        code = storage_fetch(ticket, at, reinterpret_cast<ulonglong2 *>(static_cast<char *>(to) + at));
    }
    const u32 failed = __ballot_sync(0xFFFFFFFF, code != DONE);
    if (failed != 0) code = __shfl_sync(0xFFFFFFFF, code, __ffs(failed) - 1);
    if (lane == 0) storage_end(ticket);
    return code;
}

// Reads 4 KiB by a whole warp: one lane submits, all copy. All lanes answer the same.
__device__ __forceinline__ u32 read_warp(u32 extent, u64 block, void *to) {
    u32 lane, ticket = 0;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    if (lane == 0) {
        const u32 code = read_async(extent, block, BLOCKS_MAX, ticket);
        // What was not submitted has no buffer.
        if (code != DONE) ticket = code;
    }
    return finish_warp(ticket, to);
}

namespace detail {

// Moves `count` blocks by a whole warp, in commands of up to 8 blocks: the `first`th command and each `step`th from there on. Up to 32
// are on their way at once, and all lanes copy. A lane that finds no buffer soon goes without until those of its warp have ended: who
// waits for a buffer holds none.
template <bool WRITES>
__device__ __noinline__ u32 move_warp(u32 extent, u64 block, u64 count, char *memory, u64 first, u64 step) {
    constexpr u32 ALL = 0xFFFFFFFF, COMMAND_BYTES = BLOCKS_MAX * BLOCK_BYTES;
    u32 lane, answer = __all_sync(ALL, is_reached(memory)) ? DONE : TARGET;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    const u64 commands = (count + BLOCKS_MAX - 1) / BLOCKS_MAX;
    // Those before are done. Of the 32 from here on a lane has one, which is done or not.
    u64 base = first;
    bool done = false;
#pragma unroll 1
    while (base < commands && answer == DONE) {
        const u64 mine = base + lane * step;
        const bool wants = mine < commands && !done;
        const u32 blocks = wants ? static_cast<u32>(min(count - mine * BLOCKS_MAX, static_cast<u64>(BLOCKS_MAX))) : 0;
        u32 ticket = BUSY, turn = 0, code = DONE;
#pragma unroll 1
        while (wants && ticket == BUSY && turn++ < 8) ticket = storage_begin();
        // Whether the lane has a buffer: a code is no ticket.
        bool has = wants && ticket < FAILED;
        if (wants && !has && ticket != BUSY) code = ticket;
#pragma unroll 1
        for (u32 stage = 0; stage < 2; stage++) {
            // What is written is put before its command, and what is read is fetched behind it.
            if (WRITES == (stage == 0)) {
                __syncwarp();
#pragma unroll 1
                for (u32 left = __ballot_sync(ALL, has && code == DONE); left != 0; left &= left - 1) {
                    const u32 by = __ffs(left) - 1, whose = __shfl_sync(ALL, ticket, by);
                    const u32 bytes = __shfl_sync(ALL, blocks, by) * BLOCK_BYTES;
                    char *at = memory + (base + by * step) * COMMAND_BYTES;
                    u32 copied = DONE;
#pragma unroll 1
                    for (u32 offset = lane * PIECE_BYTES; offset < bytes && copied == DONE; offset += 32 * PIECE_BYTES) {
                        ulonglong2 *piece = reinterpret_cast<ulonglong2 *>(at + offset);
                        copied = WRITES ? storage_put(whose, offset, piece) : storage_fetch(whose, offset, piece);
                    }
                    const u32 failed = __ballot_sync(ALL, copied != DONE);
                    copied = __shfl_sync(ALL, copied, failed != 0 ? __ffs(failed) - 1 : 0);
                    if (lane == by) code = copied;
                }
                __syncwarp();
            } else if (has && code == DONE) {
                code = storage_submit(ticket, extent, WRITES ? WRITE : READ, block + mine * BLOCKS_MAX, blocks);
                if (code == DONE) {
#pragma unroll 1
                    do code = storage_poll(ticket);
                    while (code == BUSY);
                }
            }
        }
        if (has) storage_end(ticket);
        done = done || has;
        const u32 failed = __ballot_sync(ALL, code != DONE);
        if (failed != 0) answer = __shfl_sync(ALL, code, __ffs(failed) - 1);
        if (__all_sync(ALL, done || mine >= commands)) {
            base += 32 * step;
            done = false;
        } else if (!__any_sync(ALL, has)) {
            __nanosleep(500);
        }
    }
    __syncwarp();
    return answer;
}

// By all threads of a block: each warp takes commands in turn. Only blocks of whole warps.
template <bool WRITES> __device__ __forceinline__ u32 move_block(u32 extent, u64 block, u64 count, char *memory) {
    __shared__ u32 answer;
    const u32 own = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    if (own == 0) answer = threads % 32 == 0 ? DONE : LENGTH;
    __syncthreads();
    u32 code = answer;
    if (code == DONE) code = move_warp<WRITES>(extent, block, count, memory, own / 32, threads / 32);
    if (code != DONE) atomicCAS(&answer, DONE, code);
    __syncthreads();
    code = answer;
    __syncthreads();
    return code;
}

}  // namespace detail

// Moves as many blocks as are wanted, by a whole warp. All lanes give the same and are answered the same; `to` and `from` lie at a
// multiple of 16.
__device__ __forceinline__ u32 read_warp(u32 extent, u64 block, u64 count, void *to) {
    return detail::move_warp<false>(extent, block, count, static_cast<char *>(to), 0, 1);
}
__device__ __forceinline__ u32 write_warp(u32 extent, u64 block, u64 count, const void *from) {
    return detail::move_warp<true>(extent, block, count, const_cast<char *>(static_cast<const char *>(from)), 0, 1);
}

// Writes 4 KiB by a whole warp, as `read_warp` reads them.
__device__ __forceinline__ u32 write_warp(u32 extent, u64 block, const void *from) {
    return write_warp(extent, block, BLOCKS_MAX, from);
}

// As many blocks as are wanted, by all threads of a block, which has whole warps. What each has read all see.
__device__ __forceinline__ u32 read_block(u32 extent, u64 block, u64 count, void *to) {
    return detail::move_block<false>(extent, block, count, static_cast<char *>(to));
}
__device__ __forceinline__ u32 write_block(u32 extent, u64 block, u64 count, const void *from) {
    return detail::move_block<true>(extent, block, count, const_cast<char *>(static_cast<const char *>(from)));
}

}  // namespace storage
