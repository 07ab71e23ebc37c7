// Questions to the host and its answers: gate, ring in host memory, host, completion, gate.
//
// gates.ptx and window.rs are made of this:
//   bulkhead module build client/examples/echo/gates.cu -o client/examples/echo/gates.ptx --rust client/examples/echo/window.rs
#include <bulkhead_module.h>

using bulkhead::u32;
using bulkhead::u64;

constexpr u32 SLOTS = 256;
// What gates answer in the place of a ticket, or of DONE.
constexpr u32 BUSY = 0xFFFFFFFF, RIGHTS = 0xFFFFFFFE, RANGE = 0xFFFFFFFD;
constexpr u32 DONE = 0;

// What the host polls lies in host memory: managed variables do. Each side stores what the other only loads.
struct Question {
    u64 badge, value;
    u32 number, unused;
};
struct Answer {
    u64 value;
    u32 number, unused;
};
__managed__ Question questions[SLOTS];
__managed__ Answer answers[SLOTS];

// Who has a slot is the gates' own, in the device's memory.
struct Slot {
    u32 taken, number;
    u64 badge;
};
__device__ Slot slots[SLOTS];
__device__ u32 next;

// Puts a question to the host. Answers a ticket, or BUSY: the caller turns, not the gate.
BULKHEAD_GATE u32 echo_ask(u64 value) {
    const u32 ticket = atomicAdd(&next, 1) % SLOTS;
    Slot &slot = slots[ticket];
    if (atomicCAS(&slot.taken, 0, 1) != 0) return BUSY;
    // What its last holder stored is seen behind this.
    bulkhead::fence();
    const u32 number = ++slot.number;
    slot.badge = bulkhead::badge();
    Question &question = questions[ticket];
    question.badge = bulkhead::badge();
    question.value = value;
    // The host looks at this first.
    bulkhead::release_system(&question.number, number);
    return ticket;
}

// Fetches the answer to a question of the caller's, into the caller's memory.
BULKHEAD_GATE u32 echo_take(u32 ticket, u64 *to) {
    if (ticket >= SLOTS) return RANGE;
    Slot &slot = slots[ticket];
    if (slot.taken == 0 || slot.badge != bulkhead::badge()) return RIGHTS;
    const Answer &answer = answers[ticket];
    if (bulkhead::acquire_system(&answer.number) != slot.number) return BUSY;
    *to = answer.value;
    slot.badge = 0;
    bulkhead::release(&slot.taken, 0);
    return DONE;
}
