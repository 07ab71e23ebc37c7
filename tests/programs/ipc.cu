// Memory of one process in another: CUDA's IPC, with an exporter and an importer that is forked before CUDA is touched.
#include "peer.h"

#include <vector>

// What is exported: within one page of 2 MiB, a little more than half of one, and whole pages.
static const size_t SIZES[] = {4096, (1 << 20) + 4, 8 << 20};
static const int COUNT = sizeof SIZES / sizeof *SIZES;

// A word of each 64 bytes is written: what looks at accesses one by one is slow.
static const size_t STEP = 16;

__global__ void fill(unsigned *words, size_t n, unsigned seed) {
    const size_t i = STEP * (blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x);
    if (i < n) words[i] = hash(static_cast<unsigned>(i) * 2654435761u + seed);
}

__global__ void verify(const unsigned *words, size_t n, unsigned seed, unsigned *wrong) {
    const size_t i = STEP * (blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x);
    if (i < n && words[i] != hash(static_cast<unsigned>(i) * 2654435761u + seed)) atomicAdd(wrong, 1u);
}

// Takes its time, and writes at its end.
__global__ void write_late(unsigned *words, unsigned rounds) {
    unsigned value = threadIdx.x;
    for (unsigned round = 0; round < rounds; round++) value = hash(value);
    words[threadIdx.x] = value;
}

static unsigned blocks(size_t n) { return static_cast<unsigned>((n + 256 * STEP - 1) / (256 * STEP)); }

static void fill_all(unsigned *words, size_t bytes, unsigned seed) {
    fill<<<blocks(bytes / 4), 256>>>(words, bytes / 4, seed);
    CHECK_KERNEL();
}

static void verify_all(const unsigned *words, size_t bytes, unsigned seed, const char *who) {
    unsigned *wrong, found = 0;
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    verify<<<blocks(bytes / 4), 256>>>(words, bytes / 4, seed, wrong);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(wrong));
    if (found != 0) Program::fail("%s: %u of %zu words are wrong", who, found, bytes / 4);
}

// Uses what was opened after it was freed: whatever comes of it, it reaches nobody's memory.
static void use_what_was_freed(unsigned *words, size_t bytes) {
    fill<<<blocks(bytes / 4), 256>>>(words, bytes / 4, 0xBADBADu);
    const cudaError_t launched = cudaDeviceSynchronize();
    if (launched != cudaSuccess) Program::fail("a kernel that went astray was not contained: %d", launched);
    unsigned word = 0;
    if (cudaMemcpy(&word, words, sizeof word, cudaMemcpyDeviceToHost) == cudaSuccess) {
        Program::fail("memory that was freed can still be read: %#x", word);
    }
    cudaGetLastError();
}

static void import(const Peer &peer, bool contained, unsigned rounds) {
    unsigned *opened[COUNT];
    cudaIpcMemHandle_t handles[COUNT];
    peer.receive(handles, sizeof handles);
    for (int k = 0; k < COUNT; k++) {
        CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void **>(&opened[k]), handles[k], cudaIpcMemLazyEnablePeerAccess));
        verify_all(opened[k], SIZES[k], 100 + k, "the importer reads");
        cudaPointerAttributes attributes;
        CHECK(cudaPointerGetAttributes(&attributes, opened[k]));
        if (attributes.type != cudaMemoryTypeDevice) Program::fail("opened memory is of type %d", attributes.type);
        fill_all(opened[k], SIZES[k], 200 + k);
        // The last byte by a copy and a fill of the host's asking.
        unsigned char last[2] = {0, 0x5A};
        unsigned char *end = reinterpret_cast<unsigned char *>(opened[k]) + SIZES[k];
        CHECK(cudaMemcpy(&last[0], end - 1, 1, cudaMemcpyDeviceToHost));
        CHECK(cudaMemset(end - 1, 0, 1));
        CHECK(cudaMemcpy(end - 1, &last[0], 1, cudaMemcpyHostToDevice));
    }
    void *again = nullptr;
    CHECK(cudaIpcOpenMemHandle(&again, handles[0], cudaIpcMemLazyEnablePeerAccess));
    if (again != opened[0]) Program::fail("a handle that is opened twice is %p and %p", again, (void *)opened[0]);
    CHECK(cudaIpcCloseMemHandle(again));
    verify_all(opened[0], SIZES[0], 200, "the importer, after one close of two,");
    CHECK(cudaIpcCloseMemHandle(opened[0]));
    peer.meet();

    // The exporter has closed nothing: what was closed here opens again, with what was written.
    peer.meet();
    CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void **>(&opened[0]), handles[0], cudaIpcMemLazyEnablePeerAccess));
    verify_all(opened[0], SIZES[0], 300, "the importer reads again");
    if (contained) {
        // Still to write when the exporter frees what they write.
        for (unsigned *one : opened) {
            write_late<<<1, 256>>>(one, rounds);
            CHECK(cudaGetLastError());
        }
    }
    peer.meet();
    if (contained) {
        // It frees everything, while it is open here.
        peer.meet();
        for (int round = 0; round < 3; round++) {
            for (int k = 0; k < COUNT; k++) use_what_was_freed(opened[k], SIZES[k]);
        }
        void *gone = nullptr;
        if (cudaIpcOpenMemHandle(&gone, handles[1], cudaIpcMemLazyEnablePeerAccess) == cudaSuccess && gone != opened[1]) {
            Program::fail("memory that was freed was opened");
        }
        cudaGetLastError();
        peer.meet();
    }
    for (unsigned *one : opened) CHECK(cudaIpcCloseMemHandle(one));
    unsigned *own;
    CHECK(cudaMalloc(&own, SIZES[1]));
    fill_all(own, SIZES[1], 7);
    verify_all(own, SIZES[1], 7, "the importer's own memory");
    CHECK(cudaFree(own));
    peer.meet();
}

static void give(const Peer &peer, bool contained) {
    unsigned *given[COUNT];
    cudaIpcMemHandle_t handles[COUNT], again;
    for (int k = 0; k < COUNT; k++) {
        CHECK(cudaMalloc(&given[k], SIZES[k]));
        fill_all(given[k], SIZES[k], 100 + k);
        CHECK(cudaIpcGetMemHandle(&handles[k], given[k]));
    }
    CHECK(cudaIpcGetMemHandle(&again, given[1]));
    if (std::memcmp(&again, &handles[1], sizeof again) != 0) Program::fail("an allocation has two handles");
    void *own = nullptr;
    if (cudaIpcOpenMemHandle(&own, handles[0], cudaIpcMemLazyEnablePeerAccess) == cudaSuccess) {
        Program::fail("a process opened what is its own");
    }
    cudaGetLastError();
    peer.send(handles, sizeof handles);

    peer.meet();
    for (int k = 0; k < COUNT; k++) verify_all(given[k], SIZES[k], 200 + k, "the exporter reads");
    fill_all(given[0], SIZES[0], 300);
    peer.meet();
    peer.meet();
    if (contained) {
        for (unsigned *one : given) CHECK(cudaFree(one));
        // Freed memory is somebody's again, and nobody else's: the importer writes on meanwhile.
        std::vector<unsigned *> next;
        for (int k = 0; k < 3 * COUNT; k++) {
            unsigned *one;
            CHECK(cudaMalloc(&one, SIZES[k % COUNT]));
            fill_all(one, SIZES[k % COUNT], 400 + k);
            next.push_back(one);
        }
        peer.meet();
        for (int k = 0; k < 3 * COUNT; k++) verify_all(next[k], SIZES[k % COUNT], 400 + k, "the next owner reads");
        peer.meet();
        for (int k = 0; k < 3 * COUNT; k++) verify_all(next[k], SIZES[k % COUNT], 400 + k, "the next owner reads again");
        for (unsigned *one : next) CHECK(cudaFree(one));
    }
    peer.meet();
    if (!contained) {
        for (unsigned *one : given) CHECK(cudaFree(one));
    }
}

int main(int argc, char **argv) {
    const Program program("ipc", argc, argv);
    // On NVIDIA's own driver the use of memory that its exporter has freed is undefined.
    const bool contained = is_contained();
    const unsigned rounds = program.large ? 4000000 : 20000;
    const Second importer([&](const Peer &peer) { import(peer, contained, rounds); });
    give(importer.peer, contained);
    importer.join();
    return Program::pass("sizes=%d", COUNT);
}
