// A log that kernels append to, and that nobody can forge.
//
// gates.ptx is made of this:
//   bulkhead module build client/examples/audit_log/gates.cu -o client/examples/audit_log/gates.ptx
#include <bulkhead_module.h>

using bulkhead::u32;
using bulkhead::u64;

constexpr u32 RECORDS = 4095;
constexpr u32 FULL = ~0u;

struct Record {
    u64 who, what;
};

// Variables lie in the module's window, which nothing but its gates and its host half reaches.
__device__ u64 count;
__device__ Record records[RECORDS];

// Appends a record of the caller's. The ticket says which; FULL where there is no more room.
BULKHEAD_GATE u32 audit_append(u64 value) {
    const u64 ticket = atomicAdd(&count, 1);
    if (ticket >= RECORDS) return FULL;
    Record &record = records[ticket];
    record.what = value;
    // Who looks at a record looks at this first.
    bulkhead::release(&record.who, bulkhead::caller());
    return static_cast<u32>(ticket);
}

// What a record of the caller's says; 0 where it is another's.
BULKHEAD_GATE u64 audit_read(u32 ticket) {
    if (ticket >= RECORDS) return 0;
    const Record &record = records[ticket];
    return bulkhead::acquire(&record.who) == bulkhead::caller() ? record.what : 0;
}

// The same in memory of the caller's own: a pointer that is passed is one of the caller's, whatever it says.
BULKHEAD_GATE u32 audit_copy(u32 ticket, u64 *to) {
    const u64 value = audit_read(ticket);
    if (value == 0) return 0;
    *to = value;
    return 1;
}
