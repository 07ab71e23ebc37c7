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

// Reads 4 KiB by a whole warp: one lane submits, all copy. All lanes answer the same.
__device__ __forceinline__ u32 read_warp(u32 extent, u64 block, void *to) {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    u32 ticket = 0, code = is_reached(to) ? DONE : TARGET;
    const bool reached = __all_sync(0xFFFFFFFF, code == DONE);
    if (lane == 0 && reached) {
        code = read_async(extent, block, BLOCKS_MAX, ticket);
        // What was not submitted has no buffer any more.
        if (code == DONE && (code = wait(ticket)) != DONE) storage_end(ticket);
    }
    code = __shfl_sync(0xFFFFFFFF, reached ? code : TARGET, 0);
    ticket = __shfl_sync(0xFFFFFFFF, ticket, 0);
    if (code != DONE) return code;
    for (u32 at = lane * PIECE_BYTES; at < BLOCKS_MAX * BLOCK_BYTES; at += 32 * PIECE_BYTES) {
        const u32 fetched = storage_fetch(ticket, at, reinterpret_cast<ulonglong2 *>(static_cast<char *>(to) + at));
        if (fetched != DONE) code = fetched;
    }
    const u32 failed = __ballot_sync(0xFFFFFFFF, code != DONE);
    if (failed != 0) code = __shfl_sync(0xFFFFFFFF, code, __ffs(failed) - 1);
    __syncwarp();
    if (lane == 0) storage_end(ticket);
    return code;
}

}  // namespace storage
