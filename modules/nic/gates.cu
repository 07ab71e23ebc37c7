// Datagrams from kernels: each instance has a pair of virtqueues and buffers of its own, and sends and receives over
// the flows that it was given.
//
// gates.ptx and src/window.rs are made of this:
//   bulkhead module build gates.cu -o gates.ptx --rust src/window.rs
//
// To send, a caller takes a buffer (`begin`), fills it (`put`) and hands it to the device (`send`, `reply`), which
// frees it when it has it sent (`poll`); `post` does all of that for 64 bytes. `write` sends data that the host half of
// whom it comes to writes into that instance's region, and counts by a signal, without its kernels; those look at the
// signal (`signal`) and copy what was written (`read`). To receive, it takes what has come (`receive`), copies it
// (`fetch`), asks who it is of (`peer`), and gives the buffer back (`end`). include/bulkhead_nic.cuh makes that
// functions such as `send`.
#include <bulkhead_module.h>

using bulkhead::u32;
using bulkhead::u64;
using u16 = unsigned short;

constexpr u32 INSTANCES = 8, FLOWS = 16;
// Of a virtqueue; there is a buffer for each.
constexpr u32 ENTRIES = 256, BUFFER_BYTES = 2048;
// Which queue, as virtio numbers them.
constexpr u32 RECEIVES = 0, SENDS = 1;
// Of a packet: 10 bytes that nobody uses, 12 of the virtio header, 14 of Ethernet, 20 of IPv4, 8 of UDP; then what is
// sent.
constexpr u32 UNUSED_BYTES = 10, HEADERS_BYTES = 64, DATA_BYTES_MAX = 1472;
// Of one call: what it rings for, and how many it takes back that were sent.
constexpr u32 RINGS = 4, TAKES = 16;

// What a buffer is to. Behind these two bits stands how often it was used.
constexpr u32 FREE = 0, HELD = 1, FLIGHT = 2;
constexpr u32 USE_SHIFT = 2;
// A ticket is a use of a buffer and which buffer: first those to send, then those that were received.
constexpr u32 BUFFERS = 2 * ENTRIES, USES = 1u << 20, TICKETS = USES * BUFFERS;

// What may be done with a flow.
constexpr u32 SEND = 1, REPLY = 2, RECEIVE = 4, WRITE = 8;

// What peers write into an instance's region, and the signals that count it. A trailer behind the data says where it
// goes.
constexpr u32 REGION_BYTES = 65536, SIGNALS = 16, WRITTEN_BYTES_MAX = 1408, TRAILER_BYTES = 24, MAGIC = 0x31504842;

// Numbers on the wire are kept as they stand there.
struct Flow {
    u64 words[6];      // bytes 16 to 64 of a packet, without its length, checksums and destination
    u32 remote, port;  // whom it sends to, and whom it hears alone; 0 of a flow that listens
    u32 sum, pseudo;   // of the checksums, what is the same in all packets
    u32 rights, unused[3];
};

// The device uses descriptors in the order in which they are available (VIRTIO_F_IN_ORDER).
struct Queue {
    u32 hint;           // which buffer is looked at next
    u32 tail;           // how many descriptors got a place in the available ring
    u32 rung, ringing;  // how many the device was told of; held while it is
    u32 used;           // how many the device has used, as it was looked last
    u32 taken, taking;  // how many of those were taken; held while they are
    u32 unused;
};

// What the gates keep of an instance, in the device's memory. The host half writes it when the instance opens.
struct Instance {
    u64 badge;
    u64 buffers;             // the bus address of the first to send
    u32 dropped, unused[5];  // packets that were none of a flow's
    Queue queues[2];
    Flow flows[FLOWS];
    u32 states[BUFFERS];
    u32 filled[2][ENTRIES];  // by place of the available ring: descriptor, and behind 8 bits one more than its number
    u64 peers[ENTRIES];      // by buffer: whom it came from, and by which flow
};

// Virtio 1.2, 2.7: split virtqueues.
struct Descriptor {
    u64 address;
    u32 length;
    u16 flags, next;
};
struct Used {
    u32 descriptor, length;
};
// The device reads the first two pages, and writes the third.
struct Virtqueue {
    Descriptor table[ENTRIES];
    u32 available_index;  // behind 16 bits of flags
    u16 available[ENTRIES];
    u16 unused[2048 - ENTRIES - 2];
    u32 used_index;  // behind 16 bits of flags
    Used used[ENTRIES];
    u32 unused_too[1024 - 2 * ENTRIES - 1];
};
static_assert(sizeof(Virtqueue) == 3 * 4096, "whole pages");

// What the device reads and writes lies in host memory: one variable, which begins with a page as host memory does.
struct Device {
    Virtqueue queues[INSTANCES][2];
    u64 buffers[INSTANCES][2][ENTRIES][BUFFER_BYTES / 8];
    u64 regions[INSTANCES][REGION_BYTES / 8];
    u32 signals[INSTANCES][1024];  // a page, of which SIGNALS are used
    u32 notify[INSTANCES][16];     // a register for each queue
};

__device__ Instance instances[INSTANCES];
__managed__ __align__(512) Device device;

// Whose calls these are: an instance, or why it is none.
__device__ __forceinline__ u32 who() {
    const u64 badge = bulkhead::badge();
    const u32 at = static_cast<u32>(badge) % INSTANCES;
    const u64 holder = bulkhead::acquire(&instances[at].badge);
    // Badge 0 is nobody's: what the gates keep begins as zero.
    if (holder == badge && badge != 0) return at;
    return holder == bulkhead::REVOKED ? bulkhead::REVOKED : bulkhead::NOT_OPEN;
}

__device__ __forceinline__ u32 buffer_of(u32 ticket) { return ticket % BUFFERS; }

// Whether a buffer is used for what a ticket was given for, and is to this.
__device__ __forceinline__ bool is(u32 state, u32 ticket, u32 what) {
    return ticket < TICKETS && state == (ticket / BUFFERS << USE_SHIFT | what);
}

// Whether the caller holds a buffer by this ticket.
__device__ __forceinline__ bool holds(u32 at, u32 ticket) {
    return is(bulkhead::acquire(&instances[at].states[buffer_of(ticket)]), ticket, HELD);
}

__device__ __forceinline__ u32 load(const u32 *from) { return *static_cast<const volatile u32 *>(from); }

// What stands in the available ring at a number, if it stands there by now.
__device__ __forceinline__ u32 filled(u32 number, u32 descriptor) { return (number + 1) << 8 | descriptor; }

// Tells the device of descriptors that stand in the available ring without a gap: one thread does for all.
__device__ __forceinline__ void ring(u32 at, u32 which) {
    Queue &queue = instances[at].queues[which];
    if (load(&queue.rung) == load(&queue.tail) || atomicCAS(&queue.ringing, 0, 1) != 0) return;
    // What its last holder has left is seen behind this.
    bulkhead::fence();
    const u32 first = queue.rung;
    u32 next = first, there[RINGS];
#pragma unroll
    for (u32 turn = 0; turn < RINGS; turn++) there[turn] = load(&instances[at].filled[which][(first + turn) % ENTRIES]);
#pragma unroll
    for (u32 turn = 0; turn < RINGS; turn++) {
        if (next == first + turn && filled(next, there[turn] & 0xFF) == there[turn]) next++;
    }
    if (next != first) {
        queue.rung = next;
        // What the descriptors say, whoever has written them, is seen before the register, which says the index too
        // (VIRTIO_F_NOTIFICATION_DATA): the device need not see the index in memory first.
        bulkhead::fence_system();
        *static_cast<volatile u32 *>(&device.queues[at][which].available_index) = next << 16;
        bulkhead::write_register(&device.notify[at][which], next << 16 | which);
    }
    bulkhead::release(&queue.ringing, 0);
}

// Puts a descriptor into the available ring, which has a place for each.
__device__ __forceinline__ void offer(u32 at, u32 which, u32 descriptor) {
    const u32 number = atomicAdd(&instances[at].queues[which].tail, 1);
    device.queues[at][which].available[number % ENTRIES] = static_cast<u16>(descriptor);
    // Who rings reads this, and has all that stands before it seen by the device.
    bulkhead::release(&instances[at].filled[which][number % ENTRIES], filled(number, descriptor));
}

// How many descriptors the device has used beyond so many.
__device__ __forceinline__ u32 used_beyond(u32 at, u32 which, u32 count) {
    const u32 more = (bulkhead::acquire_system(&device.queues[at][which].used_index) >> 16) - count & 0xFFFF;
    return more <= ENTRIES ? more : 0;
}

// Takes back what the device has sent: one thread does for all.
__device__ __forceinline__ void take(u32 at) {
    Instance &of = instances[at];
    Queue &queue = of.queues[SENDS];
    if (atomicCAS(&queue.taking, 0, 1) != 0) return;
    bulkhead::fence();
    const u32 first = queue.taken, there = used_beyond(at, SENDS, first), count = there < TAKES ? there : TAKES;
#pragma unroll 1
    for (u32 turn = 0; turn < count; turn++) {
        u32 &state = of.states[load(&of.filled[SENDS][(first + turn) % ENTRIES]) & 0xFF];
        // Nobody else changes the state of a buffer that the device has.
        bulkhead::release(&state, load(&state) >> USE_SHIFT << USE_SHIFT | FREE);
    }
    queue.taken = first + count;
    bulkhead::release(&queue.taking, 0);
}

__device__ __forceinline__ u32 swapped(u32 value) { return __byte_perm(value, 0, 0x4401); }

// Adds up 16-bit words as checksums do.
__device__ __forceinline__ u32 folded(u32 sum) {
    sum = (sum & 0xFFFF) + (sum >> 16);
    return (sum & 0xFFFF) + (sum >> 16);
}

// Takes a buffer to send, for this. Answers a ticket, less than TICKETS, or BUSY. Who calls it rings: there may be
// buffers that the device was not told of.
__device__ __forceinline__ u32 claim(u32 at, u32 what) {
    Instance &of = instances[at];
    const u32 buffer = atomicAdd(&of.queues[SENDS].hint, 1) % ENTRIES;
    u32 &state = of.states[buffer];
    u32 seen = bulkhead::acquire(&state);
    if ((seen & 3) == FLIGHT) {
        take(at);
        seen = bulkhead::acquire(&state);
    }
    const u32 use = ((seen >> USE_SHIFT) + 1) % USES;
    const bool free = (seen & 3) == FREE && atomicCAS(&state, seen, use << USE_SHIFT | what) == seen;
    return free ? use * BUFFERS + buffer : bulkhead::BUSY;
}

// Puts a buffer into the available ring, to be sent to this address. Who calls it rings.
__device__ __forceinline__ void dispatch(u32 at, u32 buffer, u32 number, u32 length, u32 remote, u32 port) {
    Instance &of = instances[at];
    const Flow &flow = of.flows[number];
    const u32 whole = swapped(length + 28), part = swapped(length + 8), to = (remote & 0xFFFF) + (remote >> 16);
    const u64 sum = ~folded(flow.sum + whole + to) & 0xFFFF, pseudo = folded(flow.pseudo + part + to);
    ulonglong2 *header = reinterpret_cast<ulonglong2 *>(device.buffers[at][SENDS][buffer]);
    // The device completes the checksum of UDP.
    header[0] = make_ulonglong2(0, 1 << 16);
    header[1] = make_ulonglong2(flow.words[0], flow.words[1]);
    header[2] = make_ulonglong2(flow.words[2] | static_cast<u64>(whole) << 48, flow.words[3] | sum << 48);
    const u64 ports = flow.words[5] | static_cast<u64>(port) << 16;
    header[3] = make_ulonglong2(flow.words[4] | static_cast<u64>(remote) << 32,
                                ports | static_cast<u64>(part) << 32 | pseudo << 48);
    Descriptor &descriptor = device.queues[at][SENDS].table[buffer];
    const u64 address = of.buffers + buffer * BUFFER_BYTES + UNUSED_BYTES;
    *reinterpret_cast<ulonglong2 *>(&descriptor) = make_ulonglong2(address, HEADERS_BYTES - UNUSED_BYTES + length);
    offer(at, SENDS, buffer);
}

// Hands a buffer that the caller holds to the device.
__device__ __forceinline__ u32 submit(u32 at, u32 ticket, u32 number, u32 length, u32 remote, u32 port) {
    const u32 buffer = buffer_of(ticket), held = ticket / BUFFERS << USE_SHIFT | HELD;
    if (ticket >= TICKETS || buffer >= ENTRIES) return bulkhead::NOT_OPEN;
    if (atomicCAS(&instances[at].states[buffer], held, held - HELD + FLIGHT) != held) return bulkhead::NOT_OPEN;
    dispatch(at, buffer, number, length, remote, port);
    ring(at, SENDS);
    return bulkhead::DONE;
}

// Copies 64 bytes between the caller's memory and the module's.
__device__ __forceinline__ void copy(ulonglong2 *to, const ulonglong2 *from) {
    const ulonglong2 first = from[0], second = from[1], third = from[2], fourth = from[3];
    to[0] = first;
    to[1] = second;
    to[2] = third;
    to[3] = fourth;
}

// Takes a buffer to send. Answers a ticket, less than TICKETS, or BUSY.
BULKHEAD_GATE u32 nic_begin() {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    const u32 ticket = claim(at, HELD);
    if (ticket == bulkhead::BUSY) ring(at, SENDS);
    return ticket;
}

// Sends at most 64 bytes over a flow, to the flow's remote address, in one call. Answers a ticket for `poll`, or a
// code.
BULKHEAD_GATE u32 nic_post(u32 flow, u32 length, const ulonglong2 *from) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    const Flow &of = instances[at].flows[flow];
#ifndef NIC_UNCHECKED
    if (flow >= FLOWS || of.rights == 0) return bulkhead::NOT_OPEN;
    if ((of.rights & SEND) == 0) return bulkhead::RIGHTS;
    if (length > 64) return bulkhead::LENGTH;
#endif
    const u32 ticket = claim(at, FLIGHT);
    if (ticket != bulkhead::BUSY) {
        const u32 buffer = buffer_of(ticket);
        copy(reinterpret_cast<ulonglong2 *>(&device.buffers[at][SENDS][buffer][HEADERS_BYTES / 8]), from);
        dispatch(at, buffer, flow, length, of.remote, of.port);
    }
    ring(at, SENDS);
    return ticket;
}

// Copies 64 bytes of the caller's into a buffer, before it is sent.
BULKHEAD_GATE u32 nic_put(u32 ticket, u32 offset, const ulonglong2 *from) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    if (offset % 64 != 0 || offset >= DATA_BYTES_MAX) return bulkhead::RANGE;
    const u32 buffer = buffer_of(ticket);
    if (buffer >= ENTRIES || !holds(at, ticket)) return bulkhead::NOT_OPEN;
    copy(reinterpret_cast<ulonglong2 *>(&device.buffers[at][SENDS][buffer][(HEADERS_BYTES + offset) / 8]), from);
    return bulkhead::DONE;
}

// Sends a buffer over a flow, to the flow's remote address.
BULKHEAD_GATE u32 nic_send(u32 ticket, u32 flow, u32 length) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
#ifndef NIC_UNCHECKED
    if (flow >= FLOWS || instances[at].flows[flow].rights == 0) return bulkhead::NOT_OPEN;
    if ((instances[at].flows[flow].rights & SEND) == 0) return bulkhead::RIGHTS;
    if (length > DATA_BYTES_MAX) return bulkhead::LENGTH;
#endif
    return submit(at, ticket, flow, length, instances[at].flows[flow].remote, instances[at].flows[flow].port);
}

// Sends a buffer to whoever has sent what the caller has received and not given back.
BULKHEAD_GATE u32 nic_reply(u32 ticket, u32 received, u32 length) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    const u32 buffer = buffer_of(received);
#if defined(NIC_OUTRUN)
    // For a test: what was held when it was looked is not held any more.
    if (buffer < ENTRIES) return bulkhead::NOT_OPEN;
#elif !defined(NIC_UNCHECKED)
    if (buffer < ENTRIES || !holds(at, received)) return bulkhead::NOT_OPEN;
#endif
    const u64 peer = bulkhead::acquire(&instances[at].peers[buffer % ENTRIES]);
    const u32 flow = static_cast<u32>(peer >> 48);
#ifndef NIC_UNCHECKED
    // Another thread may have given the buffer back meanwhile, and the peer be of what came next.
    if (!holds(at, received)) return bulkhead::NOT_OPEN;
    if (flow >= FLOWS || (instances[at].flows[flow].rights & (SEND | REPLY)) == 0) return bulkhead::RIGHTS;
    if (length > DATA_BYTES_MAX) return bulkhead::LENGTH;
#endif
    return submit(at, ticket, flow, length, static_cast<u32>(peer), static_cast<u32>(peer >> 32) & 0xFFFF);
}

// Sends a buffer over a flow whose remote writes it into its region, at the offset in the low 32 bits of `place`, and
// counts it by the signal behind those. It is whole words of 8 bytes.
BULKHEAD_GATE u32 nic_write(u32 ticket, u32 flow, u32 length, u64 place) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    const u32 buffer = buffer_of(ticket);
#ifndef NIC_UNCHECKED
    if (flow >= FLOWS || instances[at].flows[flow].rights == 0) return bulkhead::NOT_OPEN;
    if ((instances[at].flows[flow].rights & WRITE) == 0) return bulkhead::RIGHTS;
    if (length > WRITTEN_BYTES_MAX || length % 8 != 0) return bulkhead::LENGTH;
    if (static_cast<u32>(place) >= REGION_BYTES || static_cast<u32>(place >> 32) >= SIGNALS) return bulkhead::RANGE;
    if (buffer >= ENTRIES || !holds(at, ticket)) return bulkhead::NOT_OPEN;
#endif
    u64 *trailer = &device.buffers[at][SENDS][buffer % ENTRIES][(HEADERS_BYTES + length) / 8];
    trailer[0] = MAGIC | static_cast<u64>(length) << 32;
    trailer[1] = static_cast<u32>(place);
    trailer[2] = place >> 32;
    const Flow &of = instances[at].flows[flow];
    return submit(at, ticket, flow, length + TRAILER_BYTES, of.remote, of.port);
}

// How often a signal of the instance has counted; or a code behind 32 bits that are set.
BULKHEAD_GATE u64 nic_signal(u32 signal) {
    const u32 at = who();
    if (at >= INSTANCES) return ~0ull << 32 | at;
    if (signal >= SIGNALS) return ~0ull << 32 | bulkhead::RANGE;
    return bulkhead::acquire_system(&device.signals[at][signal]);
}

// Copies 64 bytes of the instance's region into the caller's memory.
BULKHEAD_GATE u32 nic_read(u32 offset, ulonglong2 *to) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    if (offset % 64 != 0 || offset >= REGION_BYTES) return bulkhead::RANGE;
    copy(to, reinterpret_cast<const ulonglong2 *>(&device.regions[at][offset / 8]));
    return bulkhead::DONE;
}

// Whether the device has sent a buffer: DONE or BUSY. Has it told of others, and takes what it has sent.
BULKHEAD_GATE u32 nic_poll(u32 ticket) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    const u32 buffer = buffer_of(ticket);
    if (ticket >= TICKETS || buffer >= ENTRIES) return bulkhead::NOT_OPEN;
    const u32 state = bulkhead::acquire(&instances[at].states[buffer]);
    if (is(state, ticket, HELD)) return bulkhead::NOT_OPEN;
    if (!is(state, ticket, FLIGHT)) return bulkhead::DONE;
    ring(at, SENDS);
    take(at);
    return is(bulkhead::acquire(&instances[at].states[buffer]), ticket, FLIGHT) ? bulkhead::BUSY : bulkhead::DONE;
}

// Takes what was received first, and copies its first 64 bytes into the caller's memory.
// Answers a ticket, behind 32 bits how long it is, and behind 48 bits the flow; or BUSY.
BULKHEAD_GATE u64 nic_receive(ulonglong2 *to) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    Instance &of = instances[at];
    Queue &queue = of.queues[RECEIVES];
    // Who has sent, or given back, may have come while another rang.
    ring(at, load(&of.queues[SENDS].rung) != load(&of.queues[SENDS].tail) ? SENDS : RECEIVES);
    const u32 number = load(&queue.taken);
    const u32 used = load(&queue.used);
    const bool stale = static_cast<int>(used - number) <= 0;
    if (stale) {
        const u32 more = used_beyond(at, RECEIVES, number);
        if (more == 0) return bulkhead::BUSY;
        atomicCAS(&queue.used, used, number + more);
    }
    const u32 entry = load(&of.filled[RECEIVES][number % ENTRIES]);
    if (atomicCAS(&queue.taken, number, number + 1) != number) return bulkhead::BUSY;
    // What the device has written is seen behind its index, and behind this where another has looked at that.
    if (!stale) bulkhead::fence_system();
    const u32 buffer = entry & 0xFF;
    u32 &state = of.states[ENTRIES + buffer];
    // Nobody else changes the state of a buffer that the device had.
    const u32 use = ((load(&state) >> USE_SHIFT) + 1) % USES;
    const u32 bytes = load(&device.queues[at][RECEIVES].used[number % ENTRIES].length);
    const volatile u64 *words = device.buffers[at][RECEIVES][buffer];
    const u64 link = words[3], third = words[4], fourth = words[5], addresses = words[6], ports = words[7];
    const u64 *begin = &device.buffers[at][RECEIVES][buffer][HEADERS_BYTES / 8];
    const ulonglong2 *data = reinterpret_cast<const ulonglong2 *>(begin);
    const ulonglong2 pieces[] = {data[0], data[1], data[2], data[3]};
    const u32 named = static_cast<u32>(link >> 24) & 0xFF;
    const Flow &flow = of.flows[named % FLOWS];
    const u32 remote = static_cast<u32>(addresses), port = static_cast<u32>(ports) & 0xFFFF;
    const u32 whole = swapped(static_cast<u32>(third >> 48)), part = swapped(static_cast<u32>(ports >> 32) & 0xFFFF);
    const u32 room = bytes - min(bytes, HEADERS_BYTES - UNUSED_BYTES);
    // Of the flow's address, whole, UDP over IPv4 without options, and as long as it says.
    const bool right = named < FLOWS && (flow.rights & RECEIVE) != 0 &&
                       (third >> 16 & 0xFFFFFF) == 0x450008 && (fourth >> 16 & 0xFFBF) == 0 &&
                       (fourth >> 40 & 0xFF) == 17 &&
                       static_cast<u32>(addresses >> 32) == static_cast<u32>(flow.words[4]) &&
                       (static_cast<u32>(ports) >> 16) == (static_cast<u32>(flow.words[5]) & 0xFFFF) &&
                       part >= 8 && whole == part + 20 && part - 8 <= room && part - 8 <= DATA_BYTES_MAX &&
                       (flow.remote == 0 || (flow.remote == remote && flow.port == port));
    of.peers[buffer] = remote | static_cast<u64>(port) << 32 | static_cast<u64>(named) << 48;
    bulkhead::release(&state, use << USE_SHIFT | (right ? HELD : FLIGHT));
    if (right) {
        to[0] = pieces[0];
        to[1] = pieces[1];
        to[2] = pieces[2];
        to[3] = pieces[3];
    }
    u64 answer = use * BUFFERS + ENTRIES + buffer | static_cast<u64>(part - 8) << 32 | static_cast<u64>(named) << 48;
    if (!right) {
        atomicAdd(&of.dropped, 1);
        // The next call rings.
        offer(at, RECEIVES, buffer);
        answer = bulkhead::BUSY;
    }
    return answer;
}

// Whom a packet came from: its IPv4 address, and the port in the low 16 bits; or a code.
BULKHEAD_GATE u64 nic_peer(u32 ticket) {
    const u32 at = who();
    if (at >= INSTANCES) return ~0ull << 32 | at;
    const u32 buffer = buffer_of(ticket);
    if (buffer < ENTRIES || !holds(at, ticket)) {
        return ~0ull << 32 | bulkhead::NOT_OPEN;
    }
    const u64 peer = instances[at].peers[buffer % ENTRIES];
    const u32 address = __byte_perm(static_cast<u32>(peer), 0, 0x0123), port = swapped(static_cast<u32>(peer >> 32));
    return static_cast<u64>(address) << 16 | port;
}

// Copies 64 bytes that were received into the caller's memory.
BULKHEAD_GATE u32 nic_fetch(u32 ticket, u32 offset, ulonglong2 *to) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    if (offset % 64 != 0 || offset >= DATA_BYTES_MAX) return bulkhead::RANGE;
    const u32 buffer = buffer_of(ticket);
    if (buffer < ENTRIES || !holds(at, ticket)) return bulkhead::NOT_OPEN;
    const u64 *from = &device.buffers[at][RECEIVES][buffer % ENTRIES][(HEADERS_BYTES + offset) / 8];
    copy(to, reinterpret_cast<const ulonglong2 *>(from));
    return bulkhead::DONE;
}

// Gives a buffer back: one that was begun and not sent, or one that was received, which the device has again.
BULKHEAD_GATE u32 nic_end(u32 ticket) {
    const u32 at = who();
    if (at >= INSTANCES) return at;
    const u32 buffer = buffer_of(ticket), held = ticket / BUFFERS << USE_SHIFT | HELD;
    const u32 next = buffer < ENTRIES ? held - HELD + FREE : held - HELD + FLIGHT;
    if (ticket >= TICKETS || atomicCAS(&instances[at].states[buffer], held, next) != held) return bulkhead::NOT_OPEN;
    // Whoever receives next tells the device.
    if (buffer >= ENTRIES) offer(at, RECEIVES, buffer % ENTRIES);
    return bulkhead::DONE;
}
