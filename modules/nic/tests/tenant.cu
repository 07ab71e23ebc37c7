// A tenant of the module `nic`, for its tests.
//
//   tenant stream PACKETS BYTES THREADS   sends so many datagrams over flow 0: a number, and what follows of it
//   tenant warps PACKETS BYTES            the same by warps
//   tenant echo PACKETS THREADS           answers so many datagrams, as they came
//   tenant count PACKETS                  receives so many, and checks what follows of their numbers
//   tenant puts PUTS BYTES                puts so many, one behind the other, counted by signal 3
//   tenant window PUTS BYTES              waits for them, and checks them
//   tenant turns TURNS                    sends over flow 0 and waits for the answer; tells the median and the slowest time
//   tenant rate PACKETS THREADS           sends so many of 64 bytes for each thread, without waiting: median of 5
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
// A kernel waits for so long at a time: while one runs nobody loads code.
constexpr u64 TURN_NS = 20'000'000;

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

// Threads answer until so many were answered by all of them, or the turn is over.
__global__ void echo(u32 packets, unsigned char *buffers, u32 *codes, u32 *count) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned char *mine = buffers + static_cast<u64>(thread) * ROOM_BYTES;
    u32 code = nic::DONE;
    const u64 until = now() + TURN_NS;
    while (code == nic::DONE && *static_cast<volatile u32 *>(count) < packets && now() < until) {
        nic::Packet packet;
        code = nic::try_receive(packet, mine);
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
    const u64 until = now() + TURN_NS;
    while (code == nic::DONE && *static_cast<volatile u32 *>(counted) < packets && now() < until) {
        nic::Packet packet;
        code = nic::try_receive(packet, mine);
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

__global__ void window(u32 puts, u32 bytes, unsigned char *buffer, u32 *codes, u64 *wrong, u32 *counted) {
    u32 code = nic::DONE, other = 1;
    const u64 until = now() + TURN_NS;
    while (code == nic::DONE && *counted < puts && now() < until) code = nic::signal(3, *counted);
    if (code == nic::DONE && *counted >= puts) {
        code = nic::read(0, buffer, puts * bytes);
        for (u32 at = 0; at < puts * bytes; at++) *wrong += buffer[at] != byte(at / bytes, at % bytes);
        if (code == nic::DONE) code = nic::signal(4, other);
        if (code == nic::DONE && other != 0) code = 1;
    }
    codes[0] = code;
}

__global__ void turns(u32 count, unsigned char *buffer, u32 *codes, u64 *times) {
    u32 code = nic::DONE;
    for (u32 turn = 0; turn < count && code == nic::DONE; turn++) {
        const u64 begun = now();
        u32 ticket;
        *reinterpret_cast<u64 *>(buffer) = turn;
        code = nic::post(0, buffer, 64, ticket);
        const u64 posted = now();
        nic::Packet packet;
        while (code == nic::DONE && (code = nic::try_receive(packet, buffer)) == nic::BUSY) code = nic::DONE;
        if (code == nic::DONE && packet.length != 64) code = 1;
        if (code == nic::DONE && *reinterpret_cast<u64 *>(buffer) != turn) code = 1;
        const u64 came = now();
        nic::done(packet);
        const u64 ended = now();
        times[turn] = ended - begun;
        times[count + turn] = posted - begun;
        times[2 * count + turn] = ended - came;
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

__global__ void rate(u32 packets, unsigned char *buffers, u32 *codes) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    u32 code = nic::DONE, ticket = 0;
    for (u32 turn = 0; turn < packets && code == nic::DONE; turn++) {
        code = nic::post(0, buffers + static_cast<u64>(thread) * ROOM_BYTES, 64, ticket);
    }
    if (code == nic::DONE && packets > 0) code = nic::sent(ticket);
    codes[thread] = code;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const auto number = [&](int at, u32 other) {
        return argc > at ? static_cast<u32>(strtoul(argv[at], nullptr, 0)) : other;
    };
    const bool is_rate = !strcmp(what, "rate"), is_turns = !strcmp(what, "turns");
    const u32 packets = number(2, 1), bytes = number(3, 64);
    u32 threads = number(3, 64);
    if (!strcmp(what, "stream")) threads = number(4, 64);
    if (!strcmp(what, "warps")) threads = 128;
    if (!strcmp(what, "puts")) threads = 32;
    if (is_turns) threads = 1;
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
    CHECK(cudaMalloc(&wrong, 3ull * max(packets, 1u) * sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    CHECK(cudaMemset(codes, 0xEE, room * sizeof *codes));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    const u32 blocks = (threads + 63) / 64, block = min(threads, 64u);
    u32 used = blocks * block;
    std::vector<double> rates;
    if (!strcmp(what, "stream")) {
        stream<<<blocks, block>>>(packets, bytes, buffers, codes);
    } else if (!strcmp(what, "warps")) {
        warps<<<blocks, block>>>(packets, bytes, buffers, codes);
        CHECK(cudaDeviceSynchronize());
        targets<<<1, 1>>>(buffers, codes + used);
        used += 4;
    } else if (!strcmp(what, "puts")) {
        puts<<<blocks, block>>>(packets, bytes, buffers, codes);
    } else if (!strcmp(what, "echo") || !strcmp(what, "count") || !strcmp(what, "window")) {
        if (!strcmp(what, "window")) used = 1;
        printf("listens\n");
        fflush(stdout);
        u32 done = 0, failed = 0;
        while (done < packets && failed == 0) {
            if (!strcmp(what, "echo")) echo<<<blocks, block>>>(packets, buffers, codes, counted);
            if (!strcmp(what, "count")) count<<<blocks, block>>>(packets, buffers, codes, wrong, counted);
            if (!strcmp(what, "window")) window<<<1, 1>>>(packets, bytes, buffers, codes, wrong, counted);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpy(&done, counted, sizeof done, cudaMemcpyDeviceToHost));
            CHECK(cudaMemcpy(&failed, codes, sizeof failed, cudaMemcpyDeviceToHost));
        }
    } else if (is_turns) {
        turns<<<1, 1>>>(packets, buffers, codes, wrong);  // loads the code, and wakes the host half
        CHECK(cudaDeviceSynchronize());
        turns<<<1, 1>>>(packets, buffers, codes, wrong);
        used = 1;
    } else if (is_rate) {
        // What comes first loads code, and finds the host half asleep.
        for (u32 turn = 0; turn < 6; turn++) {
            float milliseconds;
            CHECK(cudaEventRecord(begin));
            rate<<<blocks, block>>>(packets, buffers, codes);
            CHECK(cudaEventRecord(end));
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
            if (turn > 0) rates.push_back(static_cast<double>(packets) * used / milliseconds);
        }
    } else {
        printf("FAIL no such thing: %s\n", what);
        return 2;
    }
    CHECK(cudaDeviceSynchronize());
    std::vector<u32> found(used);
    CHECK(cudaMemcpy(found.data(), codes, used * sizeof *codes, cudaMemcpyDeviceToHost));
    u64 mistakes = 0;
    if (is_rate) {
        std::sort(rates.begin(), rates.end());
        printf("%.0f thousand datagrams a second; ", rates[rates.size() / 2]);
    }
    for (u32 code : found) {
        if (code != 0) {
            printf("ended with %x\n", code);
            return 3;
        }
    }
    if (is_turns) {
        const char *const names[] = {"p50", "of that to post", "to give back"};
        for (u32 which = 0; which < 3; which++) {
            std::vector<u64> times(packets);
            CHECK(cudaMemcpy(times.data(), wrong + 1ull * which * packets, packets * sizeof *wrong, cudaMemcpyDeviceToHost));
            std::sort(times.begin(), times.end());
            printf("%s %.2f us", names[which], times[packets / 2] / 1000.0);
            if (which == 0) printf(", p99 %.2f us", times[packets * 99ull / 100] / 1000.0);
            printf("; ");
        }
    } else {
        CHECK(cudaMemcpy(&mistakes, wrong, sizeof mistakes, cudaMemcpyDeviceToHost));
    }
    printf("%s: %llu wrong\n", what, mistakes);
    return mistakes == 0 ? 0 : 4;
}
