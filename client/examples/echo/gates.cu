// Questions to the host and its answers: gate, ring in host memory, host, completion, gate.
//
// gates.ptx and window.rs are made of this:
//   bulkhead module build client/examples/echo/gates.cu -o client/examples/echo/gates.ptx --rust client/examples/echo/window.rs
#include <bulkhead_module.h>

using bulkhead::u32;
using bulkhead::u64;

constexpr u32 SLOTS = 256;
// What gates answer in the place of a ticket, or of DONE.
constexpr u32 BUSY = 0xFFFFFFFF, RIGHTS = 0xFFFFFFFE;
constexpr u32 DONE = 0;

// What the host polls lies in host memory: managed variables do. Each word carries 32 bits and the number of its question
// (`bulkhead::tagged`), so whoever finds the same number in all of them has all of the message, in whichever order the words
// come: neither side waits for a fence.
struct Question {
    u64 badge[2], value[2];
};
struct Answer {
    u64 value[2];
};
__managed__ Question questions[SLOTS];
__managed__ Answer answers[SLOTS];

// Who has a slot is the gates' own, in the device's memory: a badge, or 0.
__device__ u64 holders[SLOTS];
__device__ u32 next;

// Puts a question to the host. Answers a ticket, or BUSY: the caller turns, not the gate.
BULKHEAD_GATE u32 echo_ask(u64 value) {
    // A number is not used again before 2^32 others. The largest is BUSY, and 0 is that of a word that was never written.
    const u32 ticket = atomicAdd(&next, 1);
    if (ticket == 0 || ticket == BUSY) return BUSY;
    if (atomicCAS(&holders[ticket % SLOTS], 0, bulkhead::badge()) != 0) return BUSY;
    Question &question = questions[ticket % SLOTS];
    bulkhead::post_system(question.badge, ticket, bulkhead::badge());
    bulkhead::post_system(question.value, ticket, value);
    return ticket;
}

// Fetches the answer to a question of the caller's, into the caller's memory.
BULKHEAD_GATE u32 echo_take(u32 ticket, u64 *to) {
    u64 &holder = holders[ticket % SLOTS];
    u64 value;
    // Both are on their way at once.
    const bool is_there = bulkhead::read_system(answers[ticket % SLOTS].value, ticket, value);
    if (bulkhead::load(&holder) != bulkhead::badge()) return RIGHTS;
    if (!is_there) return BUSY;
    *to = value;
    bulkhead::release(&holder, 0);
    return DONE;
}
