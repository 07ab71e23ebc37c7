// A tenant of the module `nic`, for its tests.
//
//   tenant stream PACKETS BYTES THREADS   sends so many datagrams over flow 0, each of which has its number and what follows of it
//   tenant warps PACKETS BYTES            the same by warps
//   tenant echo PACKETS THREADS           answers so many datagrams, as they came
//   tenant count PACKETS                  receives so many, and checks what follows of their numbers
//   tenant puts PUTS BYTES                puts so many, one behind the other from the region's begin on, and counts them by signal 3
//   tenant window PUTS BYTES              waits for them, and checks them
//   tenant turns TURNS                    sends over flow 0 and waits for the answer; tells the median and the slowest time
//   tenant attack                         what no caller may do: flow 0 is udp, 1 listens, 2 puts, and there are no others
//   tenant spin                           sends and receives for ever
//   tenant rate PACKETS THREADS           sends so many of 64 bytes for each thread, without waiting, and tells the time
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
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

// Byte `at` of datagram `number`: its first 8 bytes are the number.
__host__ __device__ unsigned char byte(u64 number, u32 at) {
    if (at < 8) return static_cast<unsigned char>(number >> 8 * at);
    return static_cast<unsigned char>((number * 0x9E3779B97F4A7C15ull >> 40) + at * 7);
}

__device__ u64 now() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

__global__ void stream(u32 packets, u32 bytes, unsigned char *buffers, u32 *codes) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    unsigned char *mine = buffers + static_cast<u64>(thread) * ROOM_BYTES;
    u32 code = nic::DONE, ticket = 0;
    for (u32 number = thread; number < packets && code == nic::DONE; number += all) {
        for (u32 at = 0; at < bytes; at++) mine[at] = byte(number, at);
        code = nic::send_async(0, mine, bytes, ticket);
    }
    if (code == nic::DONE && thread < packets) code = nic::sent(ticket);
    codes[thread] = code;
}

__global__ void warps(u32 packets, u32 bytes, unsigned char *buffers, u32 *codes) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, warp = thread / 32, all = gridDim.x * blockDim.x / 32;
    unsigned char *mine = buffers + static_cast<u64>(warp) * ROOM_BYTES;
    u32 code = nic::DONE;
    for (u32 number = warp; number < packets && code == nic::DONE; number += all) {
        for (u32 at = thread % 32; at < bytes; at += 32) mine[at] = byte(number, at);
        __syncwarp();
        code = nic::send_warp(0, mine, bytes);
    }
    codes[thread] = code;
}

// Threads answer until so many were answered by all of them.
__global__ void echo(u32 packets, unsigned char *buffers, u32 *codes, u32 *count) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned char *mine = buffers + static_cast<u64>(thread) * ROOM_BYTES;
    u32 code = nic::DONE;
    while (code == nic::DONE && *static_cast<volatile u32 *>(count) < packets) {
        nic::Packet packet;
        code = nic::try_receive(packet);
        if (code == nic::BUSY) {
            code = nic::DONE;
            __nanosleep(100);
        } else if (code == nic::DONE) {
            code = nic::copy(packet, mine);
            if (code == nic::DONE) code = nic::reply(packet, mine, packet.length);
            const u32 ended = nic::done(packet);
            if (code == nic::DONE) code = ended;
            atomicAdd(count, 1);
        }
    }
    codes[thread] = code;
}

__global__ void count(u32 packets, unsigned char *buffers, u32 *codes, u64 *wrong, u32 *counted) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned char *mine = buffers + static_cast<u64>(thread) * ROOM_BYTES;
    u32 code = nic::DONE;
    while (code == nic::DONE && *static_cast<volatile u32 *>(counted) < packets) {
        nic::Packet packet;
        code = nic::try_receive(packet);
        if (code == nic::BUSY) {
            code = nic::DONE;
            __nanosleep(100);
        } else if (code == nic::DONE) {
            nic::Peer of;
            code = nic::copy(packet, mine);
            if (code == nic::DONE) code = nic::peer(packet, of);
            u64 number = 0;
            for (u32 at = 0; at < 8; at++) number |= static_cast<u64>(mine[at]) << 8 * at;
            bool right = of.address == 0x7F000001 && packet.length >= 8;
            for (u32 at = 0; at < packet.length; at++) right = right && mine[at] == byte(number, at);
            if (!right) atomicAdd(wrong, 1);
            nic::done(packet);
            atomicAdd(counted, 1);
        }
    }
    codes[thread] = code;
}

__global__ void puts(u32 count, u32 bytes, unsigned char *buffers, u32 *codes) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    unsigned char *mine = buffers + static_cast<u64>(thread) * ROOM_BYTES;
    u32 code = nic::DONE;
    for (u32 number = thread; number < count && code == nic::DONE; number += all) {
        for (u32 at = 0; at < bytes; at++) mine[at] = byte(number, at);
        code = nic::put(0, mine, bytes, number * bytes, 3);
    }
    codes[thread] = code;
}

__global__ void window(u32 count, u32 bytes, unsigned char *buffer, u32 *codes, u64 *wrong) {
    u32 code = nic::wait_signal(3, count), other = 1;
    if (code == nic::DONE) code = nic::read(0, buffer, count * bytes);
    for (u32 at = 0; at < count * bytes; at++) *wrong += buffer[at] != byte(at / bytes, at % bytes);
    if (code == nic::DONE) code = nic::signal(4, other);
    codes[0] = code == nic::DONE && other != 0 ? 1 : code;
}

__global__ void turns(u32 count, unsigned char *buffer, u32 *codes, u64 *times) {
    u32 code = nic::DONE;
    for (u32 turn = 0; turn < count && code == nic::DONE; turn++) {
        const u64 begun = now();
        u32 ticket;
        *reinterpret_cast<u64 *>(buffer) = turn;
        code = nic::send_async(0, buffer, 64, ticket);
        nic::Packet packet;
        while (code == nic::DONE && (code = nic::try_receive(packet)) == nic::BUSY) code = nic::DONE;
        if (code == nic::DONE) code = nic::copy(packet, buffer);
        if (code == nic::DONE && *reinterpret_cast<u64 *>(buffer) != turn) code = 1;
        nic::done(packet);
        times[turn] = now() - begun;
    }
    codes[0] = code;
}

// What gates do not reach is refused, and no buffer is kept.
__global__ void targets(unsigned char *buffers, u32 *codes) {
    __shared__ ulonglong2 shared[4];
    ulonglong2 local[4];
    local[threadIdx.x].x = 7;
    void *const at[] = {shared, local, buffers + 8};
#pragma unroll 1
    for (u32 turn = 0; turn < 300; turn++) {
#pragma unroll 1
        for (u32 which = 0; which < 3; which++) {
            const u32 code = nic::send(0, at[which], 64);
            if (turn == 0) codes[which] = code == nic::TARGET ? 0 : code + 1;
        }
    }
    codes[3] = local[threadIdx.x].x == 7 ? 0 : 1;
}

// What a caller may try, and what it is answered.
struct Step {
    enum Kind { Begin, Put, Send, Reply, Write, Signal, Read, Poll, Wait, Receive, Await, Peer, Fetch, End, EndReceived } kind;
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
                do answer = nic_receive();
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
        switch (x % 11) {
            case 0: nic_begin(); break;
            case 1: nic_put(ticket, static_cast<u32>(x >> 40), memory); break;
            case 2: nic_send(ticket, x >> 33 & 31, x >> 40 & 2047); break;
            case 3: nic_reply(ticket, other, x >> 50 & 2047); break;
            case 4: nic_poll(ticket); break;
            case 5: nic_receive(); break;
            case 6: nic_peer(ticket); break;
            case 7: nic_fetch(ticket, static_cast<u32>(x >> 40), memory); break;
            case 8: nic_end(ticket); break;
            case 9: nic_write(ticket, x >> 33 & 31, x >> 40 & 2040, x); break;
            case 10: nic_read(static_cast<u32>(x >> 40), memory); break;
        }
    }
}

__global__ void spin(unsigned char *buffers, u32 *codes) {
    u32 code = nic::DONE;
    while (code == nic::DONE) {
        code = nic::send(0, buffers + threadIdx.x * ROOM_BYTES, 64);
        nic::Packet packet;
        if (code == nic::DONE && (code = nic::try_receive(packet)) == nic::DONE) code = nic::done(packet);
        if (code == nic::BUSY) code = nic::DONE;
    }
    codes[threadIdx.x] = code;
}

__global__ void rate(u32 packets, unsigned char *buffers, u32 *codes) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    u32 code = nic::DONE, ticket = 0;
    for (u32 turn = 0; turn < packets && code == nic::DONE; turn++) {
        code = nic::send_async(0, buffers + static_cast<u64>(thread) * ROOM_BYTES, 64, ticket);
    }
    if (code == nic::DONE && packets > 0) code = nic::sent(ticket);
    codes[thread] = code;
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
    };
    all.insert(all.end(), order.begin(), order.end());
    return all;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const auto number = [&](int at, u32 other) { return argc > at ? static_cast<u32>(strtoul(argv[at], nullptr, 0)) : other; };
    const bool is_rate = !strcmp(what, "rate"), is_turns = !strcmp(what, "turns");
    const u32 packets = number(2, 1), bytes = number(3, 64);
    u32 threads = !strcmp(what, "stream") ? number(4, 64) : !strcmp(what, "warps") ? 128 : is_turns ? 1 : !strcmp(what, "puts") ? 32 : number(3, 64);
    if (bytes > nic::BYTES_MAX && !is_rate) return 2;
    const u32 room = max(threads, 512u);
    u32 *codes, *counted;
    unsigned char *buffers;
    u64 *wrong;
    CHECK(cudaMalloc(&buffers, static_cast<u64>(room) * ROOM_BYTES));
    CHECK(cudaMemset(buffers, 0x5A, static_cast<u64>(room) * ROOM_BYTES));
    CHECK(cudaMalloc(&codes, room * sizeof *codes));
    CHECK(cudaMalloc(&counted, sizeof *counted));
    CHECK(cudaMemset(counted, 0, sizeof *counted));
    CHECK(cudaMalloc(&wrong, max(packets, 1u) * sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    CHECK(cudaMemset(codes, 0xEE, room * sizeof *codes));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    const std::vector<Step> attacks = steps();
    const u32 blocks = (threads + 63) / 64, block = min(threads, 64u);
    u32 used = blocks * block;
    if (!strcmp(what, "stream")) {
        stream<<<blocks, block>>>(packets, bytes, buffers, codes);
    } else if (!strcmp(what, "warps")) {
        warps<<<blocks, block>>>(packets, bytes, buffers, codes);
        CHECK(cudaDeviceSynchronize());
        targets<<<1, 1>>>(buffers, codes + used);
        used += 4;
    } else if (!strcmp(what, "echo")) {
        printf("listens\n");
        fflush(stdout);
        echo<<<blocks, block>>>(packets, buffers, codes, counted);
    } else if (!strcmp(what, "count")) {
        printf("listens\n");
        fflush(stdout);
        count<<<blocks, block>>>(packets, buffers, codes, wrong, counted);
    } else if (!strcmp(what, "puts")) {
        puts<<<blocks, block>>>(packets, bytes, buffers, codes);
    } else if (!strcmp(what, "window")) {
        printf("listens\n");
        fflush(stdout);
        window<<<1, 1>>>(packets, bytes, buffers, codes, wrong);
        used = 1;
    } else if (is_turns) {
        turns<<<1, 1>>>(10, buffers, codes, wrong);  // loads the code
        CHECK(cudaDeviceSynchronize());
        turns<<<1, 1>>>(packets, buffers, codes, wrong);
        used = 1;
    } else if (!strcmp(what, "attack")) {
        Step *tried;
        CHECK(cudaMalloc(&tried, attacks.size() * sizeof *tried));
        CHECK(cudaMemcpy(tried, attacks.data(), attacks.size() * sizeof *tried, cudaMemcpyHostToDevice));
        attack<<<1, 1>>>(tried, static_cast<u32>(attacks.size()), codes, reinterpret_cast<ulonglong2 *>(buffers));
        CHECK(cudaDeviceSynchronize());
        storm<<<4, 64>>>(200, reinterpret_cast<ulonglong2 *>(buffers));
        used = static_cast<u32>(attacks.size());
    } else if (!strcmp(what, "spin")) {
        printf("spins\n");
        fflush(stdout);
        spin<<<1, 32>>>(buffers, codes);
        used = 32;
    } else if (is_rate) {
        rate<<<blocks, block>>>(1, buffers, codes);  // loads the code
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaEventRecord(begin));
        rate<<<blocks, block>>>(packets, buffers, codes);
        CHECK(cudaEventRecord(end));
    } else {
        printf("FAIL no such thing: %s\n", what);
        return 2;
    }
    CHECK(cudaDeviceSynchronize());
    std::vector<u32> found(used);
    CHECK(cudaMemcpy(found.data(), codes, used * sizeof *codes, cudaMemcpyDeviceToHost));
    u64 mistakes = 0;
    if (!strcmp(what, "attack")) {
        for (u32 at = 0; at < used; at++) {
            if (found[at] == attacks[at].expected) continue;
            const Step &step = attacks[at];
            printf("step %u (%d %x %x %x): %x and not %x\n", at, step.kind, step.ticket, step.first, step.length, found[at],
                   step.expected);
            mistakes++;
        }
        printf("attack: %u tried, %llu wrong\n", used, mistakes);
        return mistakes == 0 ? 0 : 4;
    }
    if (is_rate) {
        float milliseconds;
        CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        printf("%.0f us, %.0f thousand datagrams a second; ", milliseconds * 1000,
               static_cast<double>(packets) * used / milliseconds);
    }
    for (u32 code : found) {
        if (code != 0) {
            printf("ended with %x\n", code);
            return 3;
        }
    }
    if (is_turns) {
        std::vector<u64> times(packets);
        CHECK(cudaMemcpy(times.data(), wrong, packets * sizeof *wrong, cudaMemcpyDeviceToHost));
        std::sort(times.begin(), times.end());
        printf("p50 %.2f us, p99 %.2f us; ", times[packets / 2] / 1000.0, times[packets * 99ull / 100] / 1000.0);
    } else {
        CHECK(cudaMemcpy(&mistakes, wrong, sizeof mistakes, cudaMemcpyDeviceToHost));
    }
    printf("%s: %llu wrong\n", what, mistakes);
    return mistakes == 0 ? 0 : 4;
}
