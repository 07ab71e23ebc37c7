// Gates of a protected module, in CUDA C: docs/MODULES.md tells how.
//
//   bulkhead module build gates.cu -o gates.ptx
//
// A gate is a function marked BULKHEAD_GATE, with arguments and a result of 32 or 64 bits. Variables of the file
// (`__device__`) lie in the module's window, which nothing but its gates and its host half reaches. Every other pointer is
// the caller's, whatever it says: an access by it reaches the caller's memory and no other. A pointer into the window that is
// stored and loaded again is a number like any other; store an index instead.
//
// A gate does not wait: no barrier, no loop that is not known to end soon. It answers that it is busy, and the caller turns.
#pragma once

// Who calls: the number of the session, as `bulkhead status` lists it. Nobody can say another.
extern "C" __constant__ unsigned long long bulkhead_caller;

// What the module's host half fixed when it gave the gates to whoever calls: 64 bits that mean what the module likes.
extern "C" __constant__ unsigned long long bulkhead_badge;

// The module's window from its first byte on, variables of the file included. What lies behind those is the author's to lay out.
extern "C" __device__ unsigned char bulkhead_window[];

#define BULKHEAD_GATE extern "C" __device__

namespace bulkhead {

using u32 = unsigned int;
using u64 = unsigned long long;

// What gates answer where they do not do what was asked: the largest numbers, so that a ticket or a length may stand in the
// same word. A caller asks again after BUSY; it turns, not the gate.
constexpr u32 DONE = 0;
constexpr u32 NOT_OPEN = 0xFFFFFFF0;  // there is no such thing, or the caller has not opened it
constexpr u32 REVOKED = 0xFFFFFFF1;   // what the caller had was taken back
constexpr u32 RANGE = 0xFFFFFFF2;     // outside of what the caller may name
constexpr u32 RIGHTS = 0xFFFFFFF3;    // the caller may not do that with it
constexpr u32 TARGET = 0xFFFFFFF4;    // the memory that is named is not the caller's, or not granted
constexpr u32 LENGTH = 0xFFFFFFF5;    // a length that is not served
constexpr u32 BUSY = 0xFFFFFFF6;      // not now: ask again
constexpr u32 GONE = 0xFFFFFFF7;      // the other side has ended

// Who calls.
__device__ __forceinline__ u64 caller() { return bulkhead_caller; }

// What the host half fixed for whoever calls.
__device__ __forceinline__ u64 badge() { return bulkhead_badge; }

// A place of the window, by its offset in bytes. It is cut to the window's size.
template <class T> __device__ __forceinline__ T *at(u64 offset) {
    return reinterpret_cast<T *>(bulkhead_window + offset);
}

namespace detail {
__device__ __forceinline__ u64 global(const void *place) {
    return static_cast<u64>(__cvta_generic_to_global(place));
}
}  // namespace detail

// What other threads of the device have written before they stored this with `release`, is seen behind it.
__device__ __forceinline__ u32 acquire(const u32 *from) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(detail::global(from)) : "memory");
    return value;
}
__device__ __forceinline__ u64 acquire(const u64 *from) {
    u64 value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(detail::global(from)) : "memory");
    return value;
}

// What this thread has written before is seen by who reads this with `acquire`.
__device__ __forceinline__ void release(u32 *to, u32 value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(detail::global(to)), "r"(value) : "memory");
}
__device__ __forceinline__ void release(u64 *to, u64 value) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(detail::global(to)), "l"(value) : "memory");
}

// The same with the host's threads and devices.
__device__ __forceinline__ u32 acquire_system(const u32 *from) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(detail::global(from)) : "memory");
    return value;
}
__device__ __forceinline__ u64 acquire_system(const u64 *from) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(detail::global(from)) : "memory");
    return value;
}
__device__ __forceinline__ void release_system(u32 *to, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(detail::global(to)), "r"(value) : "memory");
}
__device__ __forceinline__ void release_system(u64 *to, u64 value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(detail::global(to)), "l"(value) : "memory");
}

// A word as it is now: not one that was loaded before.
__device__ __forceinline__ u64 load(const u64 *from) {
    u64 value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(detail::global(from)) : "memory");
    return value;
}

// Half of a 64-bit value and the number of the message that it is of.
__device__ __forceinline__ u64 tagged(u32 half, u32 number) { return static_cast<u64>(number) << 32 | half; }

// A 64-bit value for the host, in two words that lie at a multiple of 16 bytes and carry the message's number. The host has
// it once both words have that number: nothing has to be waited for in between, as it would be with `release_system`, and the
// words may come in any order. A number must not come again while a word with it may still be there.
__device__ __forceinline__ void post_system(u64 *to, u32 number, u64 value) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(detail::global(to)),
                 "l"(tagged(static_cast<u32>(value), number)), "l"(tagged(static_cast<u32>(value >> 32), number))
                 : "memory");
}

// Such a value from the host: false where it is not there yet.
__device__ __forceinline__ bool read_system(const u64 *from, u32 number, u64 &value) {
    u64 low, high;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(detail::global(from)) : "memory");
    value = low << 32 >> 32 | high << 32;
    return low >> 32 == number && high >> 32 == number;
}

// A register of a device: each load and store is done once, in order, and nothing merges them.
__device__ __forceinline__ u32 read_register(const u32 *from) {
    u32 value;
    asm volatile("ld.mmio.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(detail::global(from)) : "memory");
    return value;
}
__device__ __forceinline__ void write_register(u32 *to, u32 value) {
    asm volatile("st.mmio.relaxed.sys.global.u32 [%0], %1;" ::"l"(detail::global(to)), "r"(value) : "memory");
}

// Orders what this thread has done before with what it does behind, for threads of the device, or for all.
__device__ __forceinline__ void fence() { __threadfence(); }
__device__ __forceinline__ void fence_system() { __threadfence_system(); }

}  // namespace bulkhead
