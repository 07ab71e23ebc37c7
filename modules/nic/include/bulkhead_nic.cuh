// Datagrams for kernels, on the gates of the module `nic`: docs/MODULES.md.
//
//   nvcc -gencode arch=compute_75,code=compute_75 -I modules/nic/include -o app app.cu
//   bulkhead run --module nic=udp:127.0.0.1:7000~127.0.0.1:7001,listen:7002 -- ./app
//
// A flow counts what was asked for: 0 is udp:..., 1 is listen:... A datagram has at most 1,472 bytes. Everything
// answers DONE or one of the module's codes. As with UDP everywhere, what was sent may be lost, doubled, or come in
// another order.
//
// One-sided writes: over a flow put:LOCAL~REMOTE data goes into the region of whoever has the flow window:LOCAL~REMOTE
// there, without a kernel of theirs, and a signal counts it: `put`, and on the other side `wait_signal` and `read`. A
// region has 64 KiB, and 16 signals: whoever may write a part of it may count signal N if byte N * 4096 is in that part.
// A put has at most 1,408 bytes, whole words of 8; one that is lost, or that the window does not take, counts nothing.
//
// Codes: NOT_OPEN (not opened, no such flow, or the module has ended), REVOKED, RIGHTS (a flow that listens only
// answers, and only a put flow puts), RANGE (beyond a region, or no such signal), TARGET (memory that is not global, or
// lies at no multiple of 16), LENGTH (more than 1,472 bytes), BUSY (nothing has come).
//
// What was received takes one of the program's 256 buffers until `done`: who keeps them all receives nothing more. What
// was sent takes one of 256 others until the device has sent it. Whoever has sent without waiting (`send_async`) and
// calls nothing of this afterwards may leave a datagram behind: `sent` waits for it.
//
// This is the caller's code like any other: it has no rights of its own. What waits, waits here, where the program can
// be ended.
#pragma once

extern "C" {
__device__ unsigned nic_begin();
__device__ unsigned nic_put(unsigned ticket, unsigned offset, const ulonglong2 *from);
__device__ unsigned nic_send(unsigned ticket, unsigned flow, unsigned length);
__device__ unsigned nic_reply(unsigned ticket, unsigned received, unsigned length);
__device__ unsigned nic_write(unsigned ticket, unsigned flow, unsigned length, unsigned long long place);
__device__ unsigned nic_poll(unsigned ticket);
__device__ unsigned long long nic_signal(unsigned signal);
__device__ unsigned nic_read(unsigned offset, ulonglong2 *to);
__device__ unsigned nic_post(unsigned flow, unsigned length, const ulonglong2 *from);
__device__ unsigned long long nic_receive(ulonglong2 *to);
__device__ unsigned long long nic_peer(unsigned ticket);
__device__ unsigned nic_fetch(unsigned ticket, unsigned offset, ulonglong2 *to);
__device__ unsigned nic_end(unsigned ticket);
}

namespace nic {

using u32 = unsigned;
using u64 = unsigned long long;

constexpr u32 DONE = 0, NOT_OPEN = 0xFFFFFFF0, REVOKED = 0xFFFFFFF1, RANGE = 0xFFFFFFF2, RIGHTS = 0xFFFFFFF3,
              TARGET = 0xFFFFFFF4, LENGTH = 0xFFFFFFF5, BUSY = 0xFFFFFFF6;
constexpr u32 CODES = 0xFFFFFFF0;  // tickets are less
// How long a thread waits that finds no buffer: the device sends some meanwhile.
constexpr u32 BACKOFF_NS = 1000;
constexpr u32 BYTES_MAX = 1472, PIECE_BYTES = 64, PUT_BYTES_MAX = 1408, REGION_BYTES = 65536, SIGNALS = 16;

// What a code says, for people.
inline const char *meaning(u32 code) {
    switch (code) {
        case DONE: return "DONE";
        case NOT_OPEN: return "NOT_OPEN: no such flow, it is not opened (`bulkhead run --module nic=...`), or the module has ended";
        case REVOKED: return "REVOKED: what was opened was taken back";
        case RANGE: return "RANGE: outside of the packet or the region";
        case RIGHTS: return "RIGHTS: not what the flow was opened for";
        case TARGET: return "TARGET: the memory is not global, or not at a multiple of 16";
        case LENGTH: return "LENGTH: more bytes than a datagram has";
        case BUSY: return "BUSY: ask again";
        default: return "no code: a ticket or a number";
    }
}

// What was received. It is kept until `done`.
struct Packet {
    u32 ticket, flow, length;
};

// Whom a packet is of.
struct Peer {
    u32 address, port;  // 0x7F000001 is 127.0.0.1
};

// Whether gates reach memory: it is global, and lies at a multiple of 16.
__device__ __forceinline__ bool is_reached(const void *memory) {
    return __isGlobal(memory) && reinterpret_cast<u64>(memory) % 16 == 0;
}

// Whether so much may be sent from there.
__device__ __forceinline__ u32 is_sent(const void *from, u32 length) {
    return length > BYTES_MAX ? LENGTH : is_reached(from) ? DONE : TARGET;
}

// A buffer of the module's, for one datagram. Answers its ticket, or a code.
__device__ __forceinline__ u32 begin() {
    u32 ticket;
#pragma unroll 1
    do {
        ticket = nic_begin();
        __nanosleep(ticket == BUSY ? BACKOFF_NS : 0);
    } while (ticket == BUSY);
    return ticket;
}

// Copies a datagram into a buffer: whole pieces of 64 bytes, so that up to 63 bytes behind it are read too.
__device__ __forceinline__ u32 fill(u32 ticket, const void *from, u32 length) {
    u32 code = DONE;
#pragma unroll 1
    for (u32 at = 0; code == DONE && at < length; at += PIECE_BYTES) {
        code = nic_put(ticket, at, reinterpret_cast<const ulonglong2 *>(static_cast<const char *>(from) + at));
    }
    return code;
}

// Waits until the device has sent a buffer.
__device__ __forceinline__ u32 sent(u32 ticket) {
    u32 code;
#pragma unroll 1
    do code = nic_poll(ticket);
    while (code == BUSY);
    return code;
}

// Sends what lies at `from`, a multiple of 16, over a flow, to the flow's remote; that may change when this returns.
// `ticket` is for `sent`, which need not be asked.
__device__ __forceinline__ u32 send_async(u32 flow, const void *from, u32 length, u32 &ticket) {
    u32 code = is_sent(from, length);
    if (code != DONE) return code;
    ticket = begin();
    if (ticket >= CODES) return ticket;
    code = fill(ticket, from, length);
    if (code == DONE) code = nic_send(ticket, flow, length);
    if (code != DONE) nic_end(ticket);
    return code;
}

// The same, and waits until the device has sent it.
__device__ __forceinline__ u32 send(u32 flow, const void *from, u32 length) {
    u32 ticket;
    const u32 code = send_async(flow, from, length, ticket);
    return code == DONE ? sent(ticket) : code;
}

// Writes what lies at `from`, a multiple of 16, at an offset of the remote's region, and has a signal there count it.
__device__ __forceinline__ u32 put_async(u32 flow, const void *from, u32 length, u32 offset, u32 signal, u32 &ticket) {
    u32 code = is_sent(from, length);
    if (code != DONE) return code;
    ticket = begin();
    if (ticket >= CODES) return ticket;
    code = fill(ticket, from, length);
    if (code == DONE) code = nic_write(ticket, flow, length, static_cast<u64>(signal) << 32 | offset);
    if (code != DONE) nic_end(ticket);
    return code;
}
__device__ __forceinline__ u32 put(u32 flow, const void *from, u32 length, u32 offset, u32 signal) {
    u32 ticket;
    const u32 code = put_async(flow, from, length, offset, signal, ticket);
    return code == DONE ? sent(ticket) : code;
}

// How often a signal has counted.
__device__ __forceinline__ u32 signal(u32 number, u32 &count) {
    const u64 answer = nic_signal(number);
    count = static_cast<u32>(answer);
    return answer >> 32 == 0 ? DONE : count;
}

// Waits until a signal has counted so far. What was put until then is read behind this.
__device__ __forceinline__ u32 wait_signal(u32 number, u32 least) {
    u32 code, count;
#pragma unroll 1
    do {
        code = signal(number, count);
        __nanosleep(100);
    } while (code == DONE && static_cast<int>(count - least) < 0);
    return code;
}

// Copies what peers have put, from an offset of the region on, which is a multiple of 64: whole pieces of 64 bytes.
__device__ __forceinline__ u32 read(u32 offset, void *to, u32 length) {
    u32 code = is_reached(to) ? DONE : TARGET;
#pragma unroll 1
    for (u32 at = 0; code == DONE && at < length; at += PIECE_BYTES) {
        code = nic_read(offset + at, reinterpret_cast<ulonglong2 *>(static_cast<char *>(to) + at));
    }
    return code;
}

// Sends at most 64 bytes in one call, which costs half as much: `ticket` is for `sent`, which need not be asked.
__device__ __forceinline__ u32 post(u32 flow, const void *from, u32 length, u32 &ticket) {
    if (!is_reached(from)) return TARGET;
#pragma unroll 1
    do {
        ticket = nic_post(flow, length, static_cast<const ulonglong2 *>(from));
        __nanosleep(ticket == BUSY ? BACKOFF_NS : 0);
    } while (ticket == BUSY);
    return ticket >= CODES ? ticket : DONE;
}

// Takes what has come first over any flow, or answers BUSY. Its first 64 bytes are copied to `to`, a multiple of 16;
// `copy` copies the rest.
__device__ __forceinline__ u32 try_receive(Packet &packet, void *to) {
    if (!is_reached(to)) return TARGET;
    const u64 answer = nic_receive(static_cast<ulonglong2 *>(to));
    const u32 ticket = static_cast<u32>(answer);
    packet = {ticket, static_cast<u32>(answer >> 48), static_cast<u32>(answer >> 32) & 0xFFFF};
    return ticket >= CODES ? ticket : DONE;
}

// Waits until something comes. A kernel that waits for long holds up whoever loads code: turns of some 50 ms are better.
__device__ __forceinline__ u32 receive(Packet &packet, void *to) {
    u32 code;
#pragma unroll 1
    do {
        code = try_receive(packet, to);
        __nanosleep(code == BUSY ? 100 : 0);
    } while (code == BUSY);
    return code;
}

// Copies what is behind a packet's first 64 bytes, which are at `to` already: whole pieces of 64 bytes, so that up to
// 63 bytes behind it are written too.
__device__ __forceinline__ u32 copy(const Packet &packet, void *to) {
    u32 code = is_reached(to) ? DONE : TARGET;
#pragma unroll 1
    for (u32 at = PIECE_BYTES; code == DONE && at < packet.length; at += PIECE_BYTES) {
        code = nic_fetch(packet.ticket, at, reinterpret_cast<ulonglong2 *>(static_cast<char *>(to) + at));
    }
    return code;
}

// Whom a packet is of.
__device__ __forceinline__ u32 peer(const Packet &packet, Peer &of) {
    const u64 answer = nic_peer(packet.ticket);
    of = {static_cast<u32>(answer >> 16), static_cast<u32>(answer) & 0xFFFF};
    return answer >> 48 == 0 ? DONE : static_cast<u32>(answer);
}

// Answers a packet that was not given back yet.
__device__ __forceinline__ u32 reply_async(const Packet &packet, const void *from, u32 length, u32 &ticket) {
    u32 code = is_sent(from, length);
    if (code != DONE) return code;
    ticket = begin();
    if (ticket >= CODES) return ticket;
    code = fill(ticket, from, length);
    if (code == DONE) code = nic_reply(ticket, packet.ticket, length);
    if (code != DONE) nic_end(ticket);
    return code;
}
__device__ __forceinline__ u32 reply(const Packet &packet, const void *from, u32 length) {
    u32 ticket;
    const u32 code = reply_async(packet, from, length, ticket);
    return code == DONE ? sent(ticket) : code;
}

// Gives a packet back.
__device__ __forceinline__ u32 done(const Packet &packet) { return nic_end(packet.ticket); }

// Sends by a whole warp: all lanes copy, one sends. All lanes answer the same, when the device has it.
__device__ __forceinline__ u32 send_warp(u32 flow, const void *from, u32 length) {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    u32 code = is_sent(from, length);
    const u32 refused = __ballot_sync(0xFFFFFFFF, code != DONE);
    if (refused != 0) return __shfl_sync(0xFFFFFFFF, code, __ffs(refused) - 1);
    u32 ticket = lane == 0 ? begin() : 0;
    ticket = __shfl_sync(0xFFFFFFFF, ticket, 0);
    if (ticket >= CODES) return ticket;
    for (u32 at = lane * PIECE_BYTES; code == DONE && at < length; at += 32 * PIECE_BYTES) {
        code = nic_put(ticket, at, reinterpret_cast<const ulonglong2 *>(static_cast<const char *>(from) + at));
    }
    const u32 failed = __ballot_sync(0xFFFFFFFF, code != DONE);
    if (failed != 0) code = __shfl_sync(0xFFFFFFFF, code, __ffs(failed) - 1);
    if (lane == 0) {
        if (code == DONE) code = nic_send(ticket, flow, length);
        if (code != DONE) nic_end(ticket);
        else code = sent(ticket);
    }
    return __shfl_sync(0xFFFFFFFF, code, 0);
}

// The same by a whole warp, of a packet that lane 0 has received: `packet` is lane 0's. All lanes answer the same.
__device__ __forceinline__ u32 copy_warp(Packet packet, void *to) {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    packet.ticket = __shfl_sync(0xFFFFFFFF, packet.ticket, 0);
    packet.length = __shfl_sync(0xFFFFFFFF, packet.length, 0);
    u32 code = is_reached(to) ? DONE : TARGET;
    for (u32 at = (1 + lane) * PIECE_BYTES; code == DONE && at < packet.length; at += 32 * PIECE_BYTES) {
        code = nic_fetch(packet.ticket, at, reinterpret_cast<ulonglong2 *>(static_cast<char *>(to) + at));
    }
    const u32 failed = __ballot_sync(0xFFFFFFFF, code != DONE);
    return failed == 0 ? DONE : __shfl_sync(0xFFFFFFFF, code, __ffs(failed) - 1);
}

}  // namespace nic
