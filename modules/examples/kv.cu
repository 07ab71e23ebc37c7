// A key-value server that answers UDP from kernels: the host launches them, and sees no request.
//
//   nvcc -gencode arch=compute_75,code=compute_75 -I modules/nic/include -o kv modules/examples/kv.cu
//   bulkhead run --module nic=listen:7000 -- ./kv
//   python3 modules/examples/kv_client.py put colour green; python3 modules/examples/kv_client.py get colour
//
// A request is a datagram of text: a word that the answer begins with too, and `PUT KEY VALUE`, `GET KEY`, or `END`,
// after which the server ends. It is answered `STORED`, `VALUE text`, `NONE`, `FULL`, `ENDS`, or `WHAT` where it is
// none of these. Keys have at most 32 bytes, values 128. As with UDP everywhere, a client that is not answered asks
// again: all requests may be repeated.
#include <cstdio>
#include <cstdlib>

#include <bulkhead_nic.cuh>

using nic::u32;
using nic::u64;

#define CHECK(call)                                                        \
    do {                                                                   \
        cudaError_t error = (call);                                        \
        if (error != cudaSuccess) {                                        \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
            exit(2);                                                       \
        }                                                                  \
    } while (0)

constexpr u32 THREADS = 64, SLOTS = 4096, PROBES = 32, TAG_MAX = 16, KEY_MAX = 32, VALUE_MAX = 128;
// What asks for a value is shorter than the first of these.
constexpr u32 REQUEST_MAX = 64, ROOM_BYTES = 1536;
// A kernel serves for so long, so that no other waits for longer than that.
constexpr u64 TURN_NS = 50'000'000;

struct Slot {
    u32 lock, key_bytes, value_bytes;  // no bytes of a key: it is free
    char key[KEY_MAX], value[VALUE_MAX];
};

struct Server {
    Slot slots[SLOTS];
    u32 served, ended, code;
};

struct Text {
    char *at;
    u32 bytes;
};

__device__ u64 now() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

__device__ bool same(const char *left, u32 left_bytes, Text right) {
    if (left_bytes != right.bytes) return false;
    for (u32 at = 0; at < left_bytes; at++) {
        if (left[at] != right.at[at]) return false;
    }
    return true;
}

__device__ void copy(char *to, const char *from, u32 bytes) {
    for (u32 at = 0; at < bytes; at++) to[at] = from[at];
}

// Cuts the first word off.
__device__ Text word(Text &rest) {
    u32 bytes = 0;
    while (bytes < rest.bytes && rest.at[bytes] != ' ') bytes++;
    const Text first = {rest.at, bytes};
    const u32 cut = min(bytes + 1, rest.bytes);
    rest = {rest.at + cut, rest.bytes - cut};
    return first;
}

// Stores a value, or finds one, at a slot: whether that was the key's place. Who holds the slot is alone with it.
__device__ bool visit(Slot &slot, Text key, Text &value, bool puts) {
    bool is_its = false;
    for (bool visited = false; !visited;) {
        if (atomicCAS(&slot.lock, 0, 1) != 0) continue;
        __threadfence();
        is_its = same(slot.key, slot.key_bytes, key) || (puts && slot.key_bytes == 0);
        if (is_its && puts) {
            copy(slot.key, key.at, key.bytes);
            slot.key_bytes = key.bytes;
            copy(slot.value, value.at, value.bytes);
            slot.value_bytes = value.bytes;
        } else if (is_its) {
            copy(value.at, slot.value, slot.value_bytes);
            value.bytes = slot.value_bytes;
        }
        __threadfence();
        atomicExch(&slot.lock, 0);
        visited = true;
    }
    return is_its;
}

__device__ bool find(Server *server, Text key, Text &value, bool puts) {
    u32 hash = 2166136261u;
    for (u32 at = 0; at < key.bytes; at++) hash = (hash ^ static_cast<unsigned char>(key.at[at])) * 16777619u;
    for (u32 probe = 0; probe < PROBES; probe++) {
        if (visit(server->slots[(hash + probe) % SLOTS], key, value, puts)) return true;
    }
    return false;
}

// Writes text: where it ends.
template <u32 BYTES> __device__ char *say(char *to, const char (&text)[BYTES]) {
    copy(to, text, BYTES - 1);
    return to + BYTES - 1;
}

// Answers what stands in a buffer, there: where the answer ends.
__device__ char *answer(Server *server, char *buffer, u32 bytes) {
    Text rest = {buffer, bytes};
    const Text tag = word(rest), verb = word(rest), key = word(rest);
    const bool puts = same("PUT", 3, verb), gets = same("GET", 3, verb);
    if (tag.bytes > TAG_MAX) return say(buffer, "WHAT");
    char *to = tag.at + tag.bytes;
    if (same("END", 3, verb)) {
        atomicExch(&server->ended, 1);
        return say(to, " ENDS");
    }
    if (!(puts || gets) || key.bytes == 0 || key.bytes > KEY_MAX || rest.bytes > VALUE_MAX) return say(to, " WHAT");
    if (puts) return find(server, key, rest, true) ? say(to, " STORED") : say(to, " FULL");
    // The value is found behind the request, and then goes to its place.
    Text value = {buffer + REQUEST_MAX, 0};
    if (!find(server, key, value, false)) return say(to, " NONE");
    to = say(to, " VALUE ");
    copy(to, value.at, value.bytes);
    return to + value.bytes;
}

__global__ void serve(Server *server, char *buffers) {
    char *mine = buffers + static_cast<u64>(blockIdx.x * blockDim.x + threadIdx.x) * ROOM_BYTES;
    const u64 until = now() + TURN_NS;
    volatile u32 *ended = &server->ended;
    while (*ended == 0 && now() < until) {
        nic::Packet packet;
        u32 code = nic::try_receive(packet, mine), ticket = 0;
        if (code == nic::BUSY) {
            __nanosleep(1000);
            continue;
        }
        if (code == nic::DONE) code = nic::copy(packet, mine);
        if (code == nic::DONE) {
            const char *end = answer(server, mine, packet.length);
            code = nic::reply_async(packet, mine, static_cast<u32>(end - mine), ticket);
        }
        if (code == nic::DONE) code = nic::done(packet);
        // The last answer is waited for; the others leave while this receives.
        if (code == nic::DONE && *ended != 0) code = nic::sent(ticket);
        if (code != nic::DONE) {
            server->code = code;
            *ended = 1;
        }
        atomicAdd(&server->served, 1);
    }
}

int main() {
    Server *server;
    char *buffers;
    CHECK(cudaMalloc(&server, sizeof *server));
    CHECK(cudaMemset(server, 0, sizeof *server));
    CHECK(cudaMalloc(&buffers, THREADS * ROOM_BYTES));
    u32 end[3] = {};
    while (end[1] == 0) {
        serve<<<2, THREADS / 2>>>(server, buffers);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(end, &server->served, sizeof end, cudaMemcpyDeviceToHost));
    }
    if (end[2] != nic::DONE) {
        fprintf(stderr, "a call was answered %x, %s\n", end[2], nic::meaning(end[2]));
        return 2;
    }
    printf("%u requests served\n", end[0]);
    return 0;
}
