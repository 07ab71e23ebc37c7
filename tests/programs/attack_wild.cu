// A hostile tenant: its kernels store to, load from and do atomics on forged addresses. It succeeds at nothing when
// it ends with PASS: its context lives, its own later work is right, and no load brought back a neighbour's secret.
// (Run natively, the first class of addresses ends its context.)
//
// usage: attack_wild [class|all] [secret] [rounds]
//   class   null, slots, edges, host, random, misaligned or index
//   secret  64-bit value, in hex, that a neighbour keeps in its memory; counted where a load returns it
//   rounds  how often every class is tried (1)
#include "program.h"

#include <cerrno>
#include <vector>

constexpr unsigned long long MARK = 0xbadc0ffee0ddf00dull;
constexpr unsigned long long SLOTS_BEGIN = 0x200000000000ull, SLOT_BYTES = 512ull << 30, GIB = 1ull << 30;
constexpr int WAYS = 13;

struct Findings {
    unsigned long long loads, secrets;
};

// Integers become global addresses here without the compiler's help: it would make them generic.
__device__ __forceinline__ void attack(unsigned long long at, int way, unsigned long long secret, Findings *findings) {
    unsigned long long wide = 0, second = 0;
    unsigned word = 0, word1 = 0, word2 = 0, word3 = 0;
    const unsigned mark = static_cast<unsigned>(MARK);
    switch (way) {
    case 0: asm volatile("st.global.u64 [%0], %1;" ::"l"(at), "l"(MARK) : "memory"); break;
    case 1: asm volatile("st.global.u32 [%0+4], %1;" ::"l"(at), "r"(mark) : "memory"); break;
    case 2: asm volatile("st.global.u8 [%0+-1], %1;" ::"l"(at), "r"(mark) : "memory"); break;
    case 3:
        asm volatile("st.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(at), "r"(mark) : "memory");
        break;
    case 4: asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(word) : "l"(at), "r"(mark) : "memory"); break;
    case 5:
        asm volatile("atom.global.cas.b64 %0, [%1], %2, %3;" : "=l"(wide) : "l"(at), "l"(secret), "l"(MARK) : "memory");
        break;
    case 6: asm volatile("red.global.max.u32 [%0], %1;" ::"l"(at), "r"(mark) : "memory"); break;
    case 7:
        asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(wide), "=l"(second) : "l"(at) : "memory");
        break;
    // Immediate offsets that lead out of a range whose base alone was confined.
    case 8: asm volatile("st.global.u32 [%0+8388604], %1;" ::"l"(at), "r"(mark) : "memory"); break;
    case 9: asm volatile("ld.global.u64 %0, [%1+-8388608];" : "=l"(wide) : "l"(at) : "memory"); break;
    case 10: asm volatile("st.global.u32 [%0+2147483640], %1;" ::"l"(at), "r"(mark) : "memory"); break;
    case 11: asm volatile("ld.global.u64 %0, [%1+8388600];" : "=l"(wide) : "l"(at) : "memory"); break;
    default:
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(word), "=r"(word1), "=r"(word2), "=r"(word3)
                     : "l"(at)
                     : "memory");
        wide = static_cast<unsigned long long>(word1) << 32 | word;
        second = static_cast<unsigned long long>(word3) << 32 | word2;
        break;
    }
    if (way == 4 || way == 5 || way == 7 || way == 9 || way >= 11) atomicAdd(&findings->loads, 1ull);
    if (wide == secret || second == secret) atomicAdd(&findings->secrets, 1ull);
}

// Every way on every address of a list.
__global__ void attack_list(const unsigned long long *addresses, int n, unsigned long long secret, Findings *findings) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n * WAYS) attack(addresses[i / WAYS], i % WAYS, secret, findings);
}

// An honest-looking kernel: an array of its own with an index that is far out of it.
__global__ void attack_index(unsigned *array, const long long *indices, int n, unsigned secret, Findings *findings) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned found = array[indices[i]];
    atomicAdd(&findings->loads, 1ull);
    if (found == secret) atomicAdd(&findings->secrets, 1ull);
    array[indices[i] + 1] = static_cast<unsigned>(MARK);
}

__global__ void work(unsigned *values, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = hash(i);
}

static unsigned long long word64(unsigned i) {
    return static_cast<unsigned long long>(hash(2 * i)) << 32 | hash(2 * i + 1);
}

struct Class {
    const char *name;
    std::vector<unsigned long long> addresses;
};

static std::vector<Class> classes(const void *own, const void *host) {
    std::vector<Class> all(6);
    all[0].name = "null";
    for (unsigned long long at : {0ull, 16ull, 4096ull, 65536ull, 1ull << 32, ~15ull, 1ull << 63}) {
        all[0].addresses.push_back(at);
    }
    all[1].name = "slots";
    for (unsigned long long slot = 0; slot < 64; slot++) {
        // The first bytes of the usable middle, a little further, and the read-only half.
        for (unsigned long long offset : {64 * GIB, 64 * GIB + 4096, 65 * GIB, 128 * GIB, 256 * GIB, 320 * GIB}) {
            all[1].addresses.push_back(SLOTS_BEGIN + slot * SLOT_BYTES + offset);
        }
    }
    all[2].name = "edges";
    for (unsigned long long slot = 0; slot < 16; slot++) {
        for (unsigned long long offset : {0ull, 16ull, 64 * GIB - 16, 192 * GIB - 16, 192 * GIB, 256 * GIB - 16,
                                          448 * GIB, SLOT_BYTES - 16}) {
            all[2].addresses.push_back(SLOTS_BEGIN + slot * SLOT_BYTES + offset);
        }
    }
    const unsigned long long mine = reinterpret_cast<unsigned long long>(own);
    for (int bit = 30; bit < 64; bit++) all[2].addresses.push_back(mine ^ 1ull << bit);
    all[3].name = "host";
    const unsigned long long here = reinterpret_cast<unsigned long long>(host);
    for (unsigned long long page = 0; page < 16; page++) {
        all[3].addresses.push_back((here & ~4095ull) + page * 4096);
        all[3].addresses.push_back(0x400000ull + page * 4096);
        all[3].addresses.push_back(0x7ffff7a00000ull + page * 0x10000);
        all[3].addresses.push_back(0x555555554000ull + page * 4096);
    }
    all[4].name = "random";
    for (unsigned i = 0; i < 1024; i++) {
        all[4].addresses.push_back(word64(i) & ~15ull);
        all[4].addresses.push_back((word64(i) & 0x7fffffffffffull) & ~15ull);
    }
    all[5].name = "misaligned";
    for (unsigned i = 0; i < 64; i++) {
        all[5].addresses.push_back(mine + 1 + i % 15);
        all[5].addresses.push_back(word64(i) | 1);
        all[5].addresses.push_back(SLOTS_BEGIN + (i % 8) * SLOT_BYTES + 64 * GIB + 1 + i);
    }
    return all;
}

// Whether the context lives and does this program's own work rightly, in memory allocated after the attack.
static void check_own_work(const char *after) {
    const int n = 4096;
    unsigned *device;
    std::vector<unsigned> values(n);
    cudaError_t error = cudaMalloc(&device, n * sizeof(unsigned));
    if (error == cudaSuccess) {
        work<<<n / 128, 128>>>(device, n);
        error = cudaMemcpy(values.data(), device, n * sizeof(unsigned), cudaMemcpyDeviceToHost);
    }
    if (error != cudaSuccess) {
        Program::fail("after %s: %s (%d)", after, cudaGetErrorName(error), static_cast<int>(error));
    }
    for (int i = 0; i < n; i++) {
        if (values[i] != hash(i)) Program::fail("after %s: own work is wrong at %d: %08x", after, i, values[i]);
    }
    CHECK(cudaFree(device));
}

// Waits for an attack and adds what it found.
static void finish(const char *name, Findings *device_findings, Findings &total) {
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) {
        Program::fail("%s addresses ended the context: %s (%d)", name, cudaGetErrorName(error), static_cast<int>(error));
    }
    Findings found;
    CHECK(cudaMemcpy(&found, device_findings, sizeof found, cudaMemcpyDeviceToHost));
    total.loads += found.loads;
    total.secrets += found.secrets;
    check_own_work(name);
}

int main(int argc, char **argv) {
    const Program program("attack_wild", argc, argv);
    const char *only = argc > 1 ? argv[1] : "all";
    // Nobody's memory is full of the value used when no neighbour's secret is given.
    unsigned long long secret = 0x5ec2e7005ec2e701ull;
    int rounds = 1;
    if (argc > 2) {
        char *end;
        errno = 0;
        secret = std::strtoull(argv[2], &end, 16);
        if (errno != 0 || *end != '\0' || secret == 0) Program::fail("\"%s\" is no secret", argv[2]);
    }
    if (argc > 3) {
        rounds = std::atoi(argv[3]);
        if (rounds < 1) Program::fail("\"%s\" is no number of rounds", argv[3]);
    }
    const bool all = std::strcmp(only, "all") == 0 || program.large;

    // Confined addresses come back to the program's own memory, most of them to its start: this array, made first and
    // large, takes what would otherwise hit the lists and findings.
    unsigned *array;
    CHECK(cudaMalloc(&array, 64 << 20));
    Findings total = {0, 0};
    int tried = 0, names = 0;
    for (int round = 0; round < rounds; round++) {
        for (const Class &some : classes(array, &total)) {
            if (!all && std::strcmp(only, some.name) != 0) continue;
            names++;
            const int n = static_cast<int>(some.addresses.size());
            unsigned long long *device_addresses;
            Findings *findings;
            CHECK(cudaMalloc(&device_addresses, n * sizeof(unsigned long long)));
            CHECK(cudaMalloc(&findings, sizeof *findings));
            CHECK(cudaMemcpy(device_addresses, some.addresses.data(), n * sizeof(unsigned long long),
                             cudaMemcpyHostToDevice));
            CHECK(cudaMemset(findings, 0, sizeof *findings));
            attack_list<<<(n * WAYS + 127) / 128, 128>>>(device_addresses, n, secret, findings);
            CHECK(cudaGetLastError());
            finish(some.name, findings, total);
            tried += n * WAYS;
            CHECK(cudaFree(device_addresses));
            CHECK(cudaFree(findings));
        }
        if (all || std::strcmp(only, "index") == 0) {
            names++;
            std::vector<long long> indices;
            for (int bit = 28; bit < 61; bit++) {
                indices.push_back(1ll << bit);
                indices.push_back(-(1ll << bit));
            }
            const int n = static_cast<int>(indices.size());
            long long *device_indices;
            Findings *findings;
            CHECK(cudaMalloc(&device_indices, n * sizeof(long long)));
            CHECK(cudaMalloc(&findings, sizeof *findings));
            CHECK(cudaMemcpy(device_indices, indices.data(), n * sizeof(long long), cudaMemcpyHostToDevice));
            CHECK(cudaMemset(findings, 0, sizeof *findings));
            attack_index<<<(n + 127) / 128, 128>>>(array, device_indices, n, static_cast<unsigned>(secret), findings);
            CHECK(cudaGetLastError());
            finish("index", findings, total);
            tried += 2 * n;
            CHECK(cudaFree(device_indices));
            CHECK(cudaFree(findings));
        }
    }
    if (names == 0) Program::fail("\"%s\" is no class of addresses", only);
    CHECK(cudaFree(array));
    if (total.secrets != 0) Program::fail("%llu of %llu loads found the secret", total.secrets, total.loads);
    return Program::pass("%d forged accesses, %llu of them loads; the context lives", tried, total.loads);
}
