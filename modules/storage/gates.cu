// Block storage from kernels: each instance has an NVMe queue pair and buffers of its own, and reaches the extents that it was
// given, with the rights that it was given them with.
//
// gates.ptx and src/window.rs are made of this:
//   bulkhead module build gates.cu -o gates.ptx --rust src/window.rs
//
// A caller takes a buffer (`begin`), fills it for a write (`put`), submits a command, asks for its end (`poll`), fetches what was
// read (`fetch`), and gives the buffer back (`end`). include/bulkhead_storage.cuh makes that functions such as `read`.
#include <bulkhead_module.h>

using bulkhead::u32;
using bulkhead::u64;

constexpr u32 INSTANCES = 8, EXTENTS = 16;
// Buffers of an instance, one for each command on its way, and what each holds.
constexpr u32 SLOTS = 512, BUFFER_BYTES = 4096;
// Entries of either queue: more than there can be commands, so that neither is ever full.
constexpr u32 ENTRIES = 1024;
constexpr u32 BLOCK_BYTES = 512, BLOCKS_MAX = BUFFER_BYTES / BLOCK_BYTES;
// Of one call: what it rings for, and what it takes from the completion queue.
constexpr u32 RINGS = 4, COMPLETIONS = 4;
// NVM command set: opcodes.
constexpr u32 FLUSH = 0, READ = 2;  // and 1 is to write
// What a device says of a command that failed stands behind this bit: status type and code of its completion.
constexpr u32 FAILED = 0x80000000;

// What a buffer is to. Behind these two bits stand the status of its command, and how often it was used.
constexpr u32 FREE = 0, HELD = 1, FLIGHT = 2, ENDED = 3;
constexpr u32 STATUS_SHIFT = 2, STATUS_MASK = 0x7FFF, USE_SHIFT = 17, USES = 1u << (32 - USE_SHIFT);
// A ticket is a use of a buffer and which buffer: less than this.
constexpr u32 TICKETS = USES * SLOTS;

struct Extent {
    u64 first, blocks;
    u32 space;   // NVMe's name of the namespace
    u32 rights;  // a bit for each opcode
};

struct Queue {
    u32 hint;           // which buffer is looked at next
    u32 tail;           // how many commands got a place in the submission queue
    u32 rung, ringing;  // for how many the doorbell was rung; held while it is
    u32 head, polling;  // how many completions were taken; held while they are
    u32 unused[2];
};

// What the gates keep of an instance, in the device's memory. The host half writes it when the instance opens.
struct Instance {
    u64 badge;
    u64 buffers;  // the bus address of the first
    Queue queue;
    Extent extents[EXTENTS];
    u32 states[SLOTS];
    u32 filled[ENTRIES];  // by place of the submission queue: one more than the number of the command that stands there
};

// NVM Express base specification: submission and completion queue entries.
struct Submission {
    u64 words[8];
};
struct Completion {
    u32 words[4];
};
struct Doorbells {
    u32 tail, head;
    u32 unused[14];
};

__device__ Instance instances[INSTANCES];
// What the device reads and writes lies in host memory: one variable, which begins with a page as host memory does.
struct Device {
    Submission submissions[INSTANCES][ENTRIES];
    Completion completions[INSTANCES][ENTRIES];
    u64 buffers[INSTANCES][SLOTS][BUFFER_BYTES / 8];
    Doorbells doorbells[INSTANCES];
};
__managed__ __align__(512) Device device;
static_assert(sizeof(Submission) * ENTRIES % 4096 == 0 && sizeof(Completion) * ENTRIES % 4096 == 0, "whole pages");

// Whose calls these are: an instance, or why it is none.
__device__ __forceinline__ u32 who() {
    const u64 badge = bulkhead::badge();
    const u32 at = static_cast<u32>(badge) % INSTANCES;
    const u64 holder = bulkhead::acquire(&instances[at].badge);
    // Badge 0 is nobody's: what the gates keep begins as zero.
    if (holder == badge && badge != 0) return at;
    return holder == bulkhead::REVOKED ? bulkhead::REVOKED : bulkhead::NOT_OPEN;
}

__device__ __forceinline__ u32 slot_of(u32 ticket) { return ticket % SLOTS; }

// Whether a buffer is used for what a ticket was given for.
__device__ __forceinline__ bool is_of(u32 state, u32 ticket) { return state >> USE_SHIFT == ticket / SLOTS; }

__device__ __forceinline__ u32 state_of(u32 at, u32 ticket) {
    return bulkhead::acquire(&instances[at].states[slot_of(ticket)]);
}

// A word as others leave it and see it at this moment, without order.
__device__ __forceinline__ volatile u32 &now(u32 &word) { return word; }

// Tells the device of commands that stand in the queue without a gap: one thread does for all.
__device__ __forceinline__ void ring(u32 at) {
    Queue &queue = instances[at].queue;
    if (atomicCAS(&queue.ringing, 0, 1) != 0) return;
    // What its last holder has left is seen behind this.
    bulkhead::fence();
    const u32 first = queue.rung;
    u32 next = first;
#pragma unroll
    for (u32 turn = 0; turn < RINGS; turn++) {
        const u32 place = first + turn, filled = now(instances[at].filled[place % ENTRIES]);
        if (next == place && filled == place + 1) next++;
    }
    if (next != first) {
        queue.rung = next;
        // What the commands are, whoever has written them, is seen before the doorbell.
        bulkhead::fence_system();
        bulkhead::write_register(&device.doorbells[at].tail, next % ENTRIES);
    }
    bulkhead::release(&queue.ringing, 0);
}

// Takes what the device has completed: one thread does for all.
__device__ __forceinline__ void take(u32 at) {
    Queue &queue = instances[at].queue;
    if (atomicCAS(&queue.polling, 0, 1) != 0) return;
    bulkhead::fence();
    const u32 first = queue.head;
    u32 words[COMPLETIONS];
#pragma unroll
    for (u32 turn = 0; turn < COMPLETIONS; turn++) {
        words[turn] = now(device.completions[at][(first + turn) % ENTRIES].words[3]);
    }
    // What a command has read is seen by whoever sees that it has ended: the stores of states need no fence of their own.
    bulkhead::fence_system();
    u32 taken = 0;
#pragma unroll
    for (u32 turn = 0; turn < COMPLETIONS; turn++) {
        const u32 word = words[turn], phase = ((first + turn) / ENTRIES & 1) ^ 1;
        if (taken == turn && (word >> 16 & 1) == phase) {
            taken++;
            u32 &state = instances[at].states[word % SLOTS];
            const u32 seen = now(state);
            // Nobody else changes the state of a buffer whose command is on its way.
            if ((word & 0xFFFF) < SLOTS && (seen & 3) == FLIGHT) {
                const u32 status = word >> 17 & STATUS_MASK;
                now(state) = seen >> USE_SHIFT << USE_SHIFT | status << STATUS_SHIFT | ENDED;
            }
        }
    }
    if (taken > 0) {
        queue.head = first + taken;
        bulkhead::write_register(&device.doorbells[at].head, (first + taken) % ENTRIES);
    }
    bulkhead::release(&queue.polling, 0);
}

// Takes a buffer. Answers a ticket, less than TICKETS, or BUSY.
BULKHEAD_GATE u32 storage_begin() {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    const u32 slot = atomicAdd(&instances[at].queue.hint, 1) % SLOTS;
    u32 &state = instances[at].states[slot];
    const u32 seen = bulkhead::acquire(&state);
    if ((seen & 3) != FREE) return bulkhead::BUSY;
    const u32 use = ((seen >> USE_SHIFT) + 1) % USES;
    if (atomicCAS(&state, seen, use << USE_SHIFT | HELD) != seen) return bulkhead::BUSY;
    return use * SLOTS + slot;
}

// Copies 64 bytes of the caller's into a buffer, before its command is submitted.
BULKHEAD_GATE u32 storage_put(u32 ticket, u32 offset, const ulonglong2 *from) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    if (offset % 64 != 0 || offset >= BUFFER_BYTES) return bulkhead::RANGE;
    const u32 state = state_of(at, ticket);
    if (ticket >= TICKETS || !is_of(state, ticket) || (state & 3) != HELD) return bulkhead::NOT_OPEN;
    ulonglong2 *to = reinterpret_cast<ulonglong2 *>(&device.buffers[at][slot_of(ticket)][offset / 8]);
    const ulonglong2 first = from[0], second = from[1], third = from[2], fourth = from[3];
    to[0] = first;
    to[1] = second;
    to[2] = third;
    to[3] = fourth;
    return bulkhead::DONE;
}

// Submits a command for a buffer: `count` blocks from `block` of an extent on.
BULKHEAD_GATE u32 storage_submit(u32 ticket, u32 extent, u32 operation, u64 block, u32 count) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    if (extent >= EXTENTS) return bulkhead::NOT_OPEN;
    const Extent &of = instances[at].extents[extent];
    const u64 blocks = of.blocks;
#ifndef STORAGE_UNCHECKED
    if (blocks == 0) return bulkhead::NOT_OPEN;
    if (operation > READ || (of.rights >> operation & 1) == 0) return bulkhead::RIGHTS;
    if (operation != FLUSH) {
        if (count == 0 || count > BLOCKS_MAX) return bulkhead::LENGTH;
        if (block >= blocks || count > blocks - block) return bulkhead::RANGE;
    }
#endif
    const u32 slot = slot_of(ticket);
    const u32 held = ticket / SLOTS << USE_SHIFT | HELD;
    if (ticket >= TICKETS || atomicCAS(&instances[at].states[slot], held, held - HELD + FLIGHT) != held) {
        return bulkhead::NOT_OPEN;
    }
    const u32 number = atomicAdd(&instances[at].queue.tail, 1);
    const bool moves = operation != FLUSH;
    ulonglong2 *entry = reinterpret_cast<ulonglong2 *>(device.submissions[at][number % ENTRIES].words);
    entry[0] = make_ulonglong2(static_cast<u64>(of.space) << 32 | slot << 16 | operation, 0);
    entry[1] = make_ulonglong2(0, moves ? instances[at].buffers + slot * BUFFER_BYTES : 0);
    entry[2] = make_ulonglong2(0, moves ? of.first + block : 0);
    entry[3] = make_ulonglong2(moves ? count - 1 : 0, 0);
    // Whoever rings for it has a fence between this and the doorbell.
    bulkhead::fence_system();
    now(instances[at].filled[number % ENTRIES]) = number + 1;
    ring(at);
    return bulkhead::DONE;
}

// Whether a command has ended: DONE, BUSY, or FAILED and its status. Has the device told of others, and takes what it completed.
BULKHEAD_GATE u32 storage_poll(u32 ticket) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    u32 state = state_of(at, ticket);
    if (ticket >= TICKETS || !is_of(state, ticket) || (state & 3) < FLIGHT) return bulkhead::NOT_OPEN;
    if ((state & 3) == FLIGHT) {
        ring(at);
        take(at);
        state = state_of(at, ticket);
        if (!is_of(state, ticket)) return bulkhead::NOT_OPEN;
        if ((state & 3) != ENDED) return bulkhead::BUSY;
    }
    const u32 status = state >> STATUS_SHIFT & STATUS_MASK;
    return status == 0 ? bulkhead::DONE : FAILED | status;
}

// Copies 64 bytes that were read into the caller's memory.
BULKHEAD_GATE u32 storage_fetch(u32 ticket, u32 offset, ulonglong2 *to) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    if (offset % 64 != 0 || offset >= BUFFER_BYTES) return bulkhead::RANGE;
    const u32 state = state_of(at, ticket);
    if (ticket >= TICKETS || !is_of(state, ticket) || (state & 3) != ENDED) return bulkhead::NOT_OPEN;
    const ulonglong2 *from = reinterpret_cast<const ulonglong2 *>(&device.buffers[at][slot_of(ticket)][offset / 8]);
    const ulonglong2 first = from[0], second = from[1], third = from[2], fourth = from[3];
    to[0] = first;
    to[1] = second;
    to[2] = third;
    to[3] = fourth;
    return bulkhead::DONE;
}

// Gives a buffer back that has no command on its way.
BULKHEAD_GATE u32 storage_end(u32 ticket) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    u32 &state = instances[at].states[slot_of(ticket)];
    const u32 seen = bulkhead::acquire(&state);
    const u32 is = seen & 3;
    if (ticket >= TICKETS || !is_of(seen, ticket) || (is != HELD && is != ENDED)) return bulkhead::NOT_OPEN;
    if (atomicCAS(&state, seen, seen >> USE_SHIFT << USE_SHIFT | FREE) != seen) return bulkhead::NOT_OPEN;
    return bulkhead::DONE;
}
