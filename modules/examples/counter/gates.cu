// Counters: tenants' kernels add to those of their own instance, and to nobody else's.
//
// gates.ptx and src/window.rs are made of this:
//   bulkhead module build gates.cu -o gates.ptx --rust src/window.rs
#include <bulkhead_module.h>

using bulkhead::u32;
using bulkhead::u64;

constexpr u32 INSTANCES = 64, KEYS = 1024;

// What an instance may: the host half writes it. An instance that is open has its badge here; one that is revoked has
// REVOKED in the place.
struct Account {
    u64 badge;
    u64 limit;
};
__device__ Account accounts[INSTANCES];
__device__ u64 counters[INSTANCES][KEYS];

// Which account a badge means, or why none.
__device__ __forceinline__ u32 account(u64 badge) {
    const u32 slot = static_cast<u32>(badge) % INSTANCES;
    const u64 holder = bulkhead::acquire(&accounts[slot].badge);
    // Badge 0 is nobody's: what the gates keep begins as zero.
    if (holder == badge && badge != 0) return slot;
    return holder == bulkhead::REVOKED ? bulkhead::REVOKED : bulkhead::NOT_OPEN;
}

// Adds to a counter, and says what it was before.
BULKHEAD_GATE u32 counter_add(u32 key, u64 by, u64 *before) {
    const u32 slot = account(bulkhead::badge());
    if (slot >= INSTANCES) return slot;
    if (key >= KEYS) return bulkhead::RANGE;
    if (by > accounts[slot].limit) return bulkhead::RIGHTS;
    *before = atomicAdd(&counters[slot][key], by);
    return bulkhead::DONE;
}

// Reads a counter.
BULKHEAD_GATE u32 counter_get(u32 key, u64 *value) {
    const u32 slot = account(bulkhead::badge());
    if (slot >= INSTANCES) return slot;
    if (key >= KEYS) return bulkhead::RANGE;
    *value = counters[slot][key];
    return bulkhead::DONE;
}
