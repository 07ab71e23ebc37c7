// What a hostile tenant of the module `nic` does, for its tests.
//
//   hostile attack    what no caller may do: flow 0 is udp, 1 listens, 2 puts, and there are no others
//   hostile spin      sends and receives for ever, which is only hostile to whoever ends it
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <bulkhead_nic.cuh>

using nic::u32;
using nic::u64;

#define CHECK(call)                                                                                        \
    do {                                                                                                   \
        cudaError_t error = (call);                                                                        \
        if (error != cudaSuccess) {                                                                        \
            printf("FAIL %s: %s\n", #call, cudaGetErrorString(error));                                     \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

constexpr u32 ROOM_BYTES = 1536;
// How long an attack waits for what does not come.
constexpr u64 PATIENCE_NS = 2'000'000'000;

__device__ u64 now() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

// What a caller may try, and what it is answered.
struct Step {
    enum Kind {
        Begin, Put, Send, Reply, Post, Write, Signal, Read, Poll, Wait, Receive, Await, Peer, Fetch, End, EndReceived
    } kind;
    u32 ticket;  // other bits than those of the ticket that began last, or was received last
    u32 first;   // flow, or offset
    u32 length, expected;
    u64 place;
};

// One after the other, on one thread: a gate's code stands here once for all.
__global__ void attack(const Step *steps, u32 count, u32 *codes, ulonglong2 *memory) {
    u32 last = 0, received = 0;
    for (u32 at = 0; at < count; at++) {
        const Step step = steps[at];
        u32 code = nic::BUSY;
        switch (step.kind) {
            case Step::Begin:
                code = nic_begin();
                last = code;
                code = code < nic::CODES ? nic::DONE : code;
                break;
            case Step::Put: code = nic_put(last ^ step.ticket, step.first, memory); break;
            case Step::Send: code = nic_send(last ^ step.ticket, step.first, step.length); break;
            case Step::Reply: code = nic_reply(last ^ step.first, received ^ step.ticket, step.length); break;
            case Step::Post:
                code = nic_post(step.first, step.length, memory);
                code = code < nic::CODES ? nic::DONE : code;
                break;
            case Step::Write: code = nic_write(last ^ step.ticket, step.first, step.length, step.place); break;
            case Step::Signal: {
                const u64 answer = nic_signal(step.first);
                code = answer >> 32 == 0 ? nic::DONE : static_cast<u32>(answer);
                break;
            }
            case Step::Read: code = nic_read(step.first, memory); break;
            case Step::Receive:
            case Step::Await: {
                u64 answer;
                const u64 until = now() + PATIENCE_NS;
                do answer = nic_receive(memory);
                while (step.kind == Step::Await && static_cast<u32>(answer) == nic::BUSY && now() < until);
                code = static_cast<u32>(answer);
                if (code < nic::CODES) {
                    received = code;
                    code = nic::DONE;
                }
                break;
            }
            case Step::Peer: {
                const u64 answer = nic_peer(received ^ step.ticket);
                code = answer >> 48 == 0 ? nic::DONE : static_cast<u32>(answer);
                break;
            }
            case Step::Fetch: code = nic_fetch(received ^ step.ticket, step.first, memory); break;
            case Step::End:
            case Step::EndReceived: code = nic_end((step.kind == Step::End ? last : received) ^ step.ticket); break;
            case Step::Poll:
            case Step::Wait: {
                const u64 until = now() + PATIENCE_NS;
                do code = nic_poll(last ^ step.ticket);
                while (step.kind == Step::Wait && code == nic::BUSY && now() < until);
            }
        }
        codes[at] = code;
    }
}

// All threads do all they can with all tickets there may be, at once: whatever comes of it is the caller's own.
__global__ void storm(u32 turns, ulonglong2 *memory) {
    u64 x = (blockIdx.x * blockDim.x + threadIdx.x + 1) * 0x9E3779B97F4A7C15ull;
#pragma unroll 1
    for (u32 turn = 0; turn < turns; turn++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        const u32 ticket = static_cast<u32>(x >> 20) % (8 * 512), other = static_cast<u32>(x >> 33) % (8 * 512);
        switch (x % 12) {
            case 0: nic_begin(); break;
            case 1: nic_put(ticket, static_cast<u32>(x >> 40), memory); break;
            case 2: nic_send(ticket, x >> 33 & 31, x >> 40 & 2047); break;
            case 3: nic_reply(ticket, other, x >> 50 & 2047); break;
            case 4: nic_poll(ticket); break;
            case 5: nic_receive(memory); break;
            case 6: nic_peer(ticket); break;
            case 7: nic_fetch(ticket, static_cast<u32>(x >> 40), memory); break;
            case 8: nic_end(ticket); break;
            case 9: nic_write(ticket, x >> 33 & 31, x >> 40 & 2040, x); break;
            case 11: nic_post(x >> 33 & 31, x >> 40 & 127, memory); break;
            case 10: nic_read(static_cast<u32>(x >> 40), memory); break;
        }
    }
}

__global__ void spin(unsigned char *buffers, u32 *codes) {
    u32 code = nic::DONE;
    unsigned char *mine = buffers + threadIdx.x * ROOM_BYTES;
    while (code == nic::DONE) {
        code = nic::send(0, mine, 64);
        nic::Packet packet;
        if (code == nic::DONE && (code = nic::try_receive(packet, mine)) == nic::DONE) code = nic::done(packet);
        if (code == nic::BUSY) code = nic::DONE;
    }
    codes[threadIdx.x] = code;
}

std::vector<Step> steps() {
    using namespace nic;
    std::vector<Step> all = {{Step::Begin, 0, 0, 0, DONE}};
    for (u32 flow : {3u, 15u, 16u, 17u, 105u, 1u << 16, 1u << 28, ~0u}) all.push_back({Step::Send, 0, flow, 64, NOT_OPEN});
    all.push_back({Step::Send, 0, 1, 64, RIGHTS});
    for (u32 length : {1473u, 1985u, 2048u, 65535u, 1u << 16, 1u << 31, ~0u, ~0u - 53, ~0u - 27}) {
        all.push_back({Step::Send, 0, 0, length, LENGTH});
    }
    for (u32 offset : {1472u, 1473u, 2048u, ~0u - 63, 8u, 63u, 1u << 31}) {
        all.push_back({Step::Put, 0, offset, 0, RANGE});
        all.push_back({Step::Fetch, 0, offset, 0, RANGE});
    }
    for (u32 flow : {3u, 16u, 1u << 28, ~0u}) all.push_back({Step::Post, 0, flow, 64, NOT_OPEN});
    for (u32 flow : {1u, 2u}) all.push_back({Step::Post, 0, flow, 64, RIGHTS});
    for (u32 length : {65u, 1472u, 2048u, 1u << 31, ~0u - 53}) all.push_back({Step::Post, 0, 0, length, LENGTH});
    // Flow 2 is for puts, and takes nothing else.
    all.push_back({Step::Send, 0, 2, 64, RIGHTS});
    for (u32 flow : {0u, 1u}) all.push_back({Step::Write, 0, flow, 64, RIGHTS, 0});
    for (u32 flow : {3u, 16u, ~0u}) all.push_back({Step::Write, 0, flow, 64, NOT_OPEN, 0});
    for (u32 length : {7u, 1409u, 1416u, 1472u, 1u << 31, ~0u - 7, ~0u - 23}) {
        all.push_back({Step::Write, 0, 2, length, LENGTH, 0});
    }
    for (u64 place : {65536ull, 0xFFFFFFFFull, 16ull << 32, ~0ull}) all.push_back({Step::Write, 0, 2, 64, RANGE, place});
    for (u32 ticket : {1u, 256u, 512u, 1u << 29, 1u << 31}) all.push_back({Step::Write, ticket, 2, 64, NOT_OPEN, 0});
    for (u32 signal : {16u, 1024u, 1u << 30, ~0u}) all.push_back({Step::Signal, 0, signal, 0, RANGE});
    for (u32 offset : {65536u, ~0u - 63, 8u, 1u << 31}) all.push_back({Step::Read, 0, offset, 0, RANGE});
    all.push_back({Step::Signal, 0, 15, 0, DONE});
    all.push_back({Step::Read, 0, 65472, 0, DONE});
    // Nothing was received: whatever is said to be, is not.
    for (u32 ticket : {0u, 256u, 511u, 768u, 1u << 29, 1u << 31, ~0u}) {
        all.push_back({Step::Reply, ticket, 0, 64, NOT_OPEN});
        all.push_back({Step::Fetch, ticket, 0, 0, NOT_OPEN});
        all.push_back({Step::Peer, ticket, 0, 0, NOT_OPEN});
        all.push_back({Step::EndReceived, ticket, 0, 0, NOT_OPEN});
    }
    const std::vector<Step> order = {
        {Step::Poll, 0, 0, 0, NOT_OPEN},        // not sent
        {Step::Send, 512, 0, 64, NOT_OPEN},     // another use of the buffer
        {Step::Send, 0x80000000, 0, 64, NOT_OPEN},
        {Step::Send, 1u << 29, 0, 64, NOT_OPEN},  // no ticket
        {Step::Send, 1, 0, 64, NOT_OPEN},       // nobody's
        {Step::Send, 256, 0, 64, NOT_OPEN},     // a buffer to receive
        {Step::Put, 256, 0, 0, NOT_OPEN},
        {Step::Poll, 256, 0, 0, NOT_OPEN},
        {Step::End, 256, 0, 0, NOT_OPEN},       // the device's
        {Step::End, 1, 0, 0, NOT_OPEN},
        {Step::Put, 0, 0, 0, DONE},
        {Step::Send, 0, 0, 64, DONE},
        {Step::Send, 0, 0, 64, NOT_OPEN},       // twice
        {Step::Put, 0, 0, 0, NOT_OPEN},         // on its way, or sent
        {Step::End, 0, 0, 0, NOT_OPEN},
        {Step::Wait, 0, 0, 0, DONE},
        {Step::Send, 0, 0, 64, NOT_OPEN},       // sent
        {Step::End, 0, 0, 0, NOT_OPEN},
        {Step::Await, 0, 0, 0, DONE},           // its peer answers
        {Step::Peer, 0, 0, 0, DONE},
        {Step::Fetch, 0, 1408, 0, DONE},
        {Step::Fetch, 512, 0, 0, NOT_OPEN},     // another use of it
        {Step::Fetch, 256, 0, 0, NOT_OPEN},     // a buffer to send
        {Step::Reply, 0, 0, 64, NOT_OPEN},      // with a buffer that is not held
        {Step::Begin, 0, 0, 0, DONE},
        {Step::Reply, 0, 0, 1473, LENGTH},
        {Step::Reply, 0, 0, ~0u, LENGTH},
        {Step::Reply, 0, 0, 0, DONE},           // no byte
        {Step::Wait, 0, 0, 0, DONE},
        {Step::EndReceived, 0, 0, 0, DONE},
        {Step::EndReceived, 0, 0, 0, NOT_OPEN},  // twice
        {Step::Fetch, 0, 0, 0, NOT_OPEN},
        {Step::Peer, 0, 0, 0, NOT_OPEN},
        {Step::Begin, 0, 0, 0, DONE},
        {Step::Reply, 0, 0, 64, NOT_OPEN},      // given back
        {Step::Send, 0, 0, 1472, DONE},         // the longest
        {Step::Wait, 0, 0, 0, DONE},
        {Step::Post, 0, 0, 0, DONE},            // no byte
        {Step::Post, 0, 0, 64, DONE},
    };
    all.insert(all.end(), order.begin(), order.end());
    return all;
}

void attack() {
    const std::vector<Step> tried = steps();
    Step *given;
    u32 *codes;
    ulonglong2 *memory;
    CHECK(cudaMalloc(&given, tried.size() * sizeof *given));
    CHECK(cudaMalloc(&codes, tried.size() * sizeof *codes));
    CHECK(cudaMalloc(&memory, ROOM_BYTES));
    CHECK(cudaMemcpy(given, tried.data(), tried.size() * sizeof *given, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(codes, 0xEE, tried.size() * sizeof *codes));
    attack<<<1, 1>>>(given, static_cast<u32>(tried.size()), codes, memory);
    CHECK(cudaDeviceSynchronize());
    storm<<<4, 64>>>(200, memory);
    CHECK(cudaDeviceSynchronize());
    std::vector<u32> found(tried.size());
    CHECK(cudaMemcpy(found.data(), codes, found.size() * sizeof *codes, cudaMemcpyDeviceToHost));
    u32 mistakes = 0;
    for (size_t at = 0; at < tried.size(); at++) {
        const Step &step = tried[at];
        if (found[at] == step.expected) continue;
        printf("step %zu (%d %x %x %x): %x and not %x\n", at, step.kind, step.ticket, step.first, step.length, found[at],
               step.expected);
        mistakes++;
    }
    printf("attack: %zu tried, %u wrong\n", tried.size(), mistakes);
    exit(mistakes == 0 ? 0 : 4);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "attack")) attack();
    if (argc < 2 || strcmp(argv[1], "spin") != 0) return 2;
    unsigned char *buffers;
    u32 *codes, found[32];
    CHECK(cudaMalloc(&buffers, 32 * ROOM_BYTES));
    CHECK(cudaMalloc(&codes, sizeof found));
    printf("spins\n");
    fflush(stdout);
    spin<<<1, 32>>>(buffers, codes);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(found, codes, sizeof found, cudaMemcpyDeviceToHost));
    for (u32 code : found) {
        if (code != nic::DONE) {
            printf("ended with %x\n", code);
            return 3;
        }
    }
    return 0;
}
