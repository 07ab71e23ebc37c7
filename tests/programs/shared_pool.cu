// Memory pools that processes share: a pool by a descriptor, its allocations by what was exported for their pointers.
#include "peer.h"

#include <vector>

static const size_t SIZES[] = {4096, (1 << 20) + 4, 8 << 20};
static const int COUNT = sizeof SIZES / sizeof *SIZES;
static const cudaMemAllocationHandleType KIND = cudaMemHandleTypePosixFileDescriptor;

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

static unsigned blocks(size_t n) { return static_cast<unsigned>((n + 256 * STEP - 1) / (256 * STEP)); }

static void fill_all(unsigned *words, size_t bytes, unsigned seed, cudaStream_t stream) {
    fill<<<blocks(bytes / 4), 256, 0, stream>>>(words, bytes / 4, seed);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
}

static void verify_all(const unsigned *words, size_t bytes, unsigned seed, cudaStream_t stream, const char *who) {
    unsigned *wrong, found = 0;
    CHECK(cudaMallocAsync(&wrong, sizeof *wrong, stream));
    CHECK(cudaMemsetAsync(wrong, 0, sizeof *wrong, stream));
    verify<<<blocks(bytes / 4), 256, 0, stream>>>(words, bytes / 4, seed, wrong);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(&found, wrong, sizeof found, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(wrong, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (found != 0) Program::fail("%s: %u of %zu words are wrong", who, found, bytes / 4);
}

static cudaMemPool_t make_pool() {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = KIND;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &properties));
    return pool;
}

static cudaMemPool_t take_pool(const Peer &peer) {
    const int descriptor = peer.receive_descriptor();
    cudaMemPool_t pool;
    CHECK(cudaMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void *>(static_cast<size_t>(descriptor)), KIND, 0));
    close(descriptor);
    cudaMemAccessDesc access = {};
    access.location.type = cudaMemLocationTypeDevice;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    cudaMemAccessFlags flags;
    CHECK(cudaMemPoolGetAccess(&flags, pool, &access.location));
    if (flags != cudaMemAccessFlagsProtReadWrite) Program::fail("the pool is not reached: %d", flags);
    return pool;
}

static void give_pool(const Peer &peer, cudaMemPool_t pool) {
    int descriptor = -1;
    CHECK(cudaMemPoolExportToShareableHandle(&descriptor, pool, KIND, 0));
    peer.send_descriptor(descriptor);
    close(descriptor);
}

static void import(const Peer &peer, bool contained) {
    unsigned *words[COUNT];
    cudaMemPoolPtrExportData exported[COUNT];
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const cudaMemPool_t pool = take_pool(peer), other = take_pool(peer);
    peer.receive(exported, sizeof exported);
    for (int k = 0; k < COUNT; k++) {
        void *pointer = nullptr;
        if (cudaMemPoolImportPointer(&pointer, other, &exported[k]) == cudaSuccess) Program::fail("any pool has any pointer");
        cudaGetLastError();
        CHECK(cudaMemPoolImportPointer(&pointer, pool, &exported[k]));
        words[k] = static_cast<unsigned *>(pointer);
        verify_all(words[k], SIZES[k], 100 + k, stream, "the importer reads");
        cudaPointerAttributes attributes;
        CHECK(cudaPointerGetAttributes(&attributes, words[k]));
        if (attributes.type != cudaMemoryTypeDevice) Program::fail("imported memory is of type %d", attributes.type);
        fill_all(words[k], SIZES[k], 200 + k, stream);
    }
    void *none = nullptr;
    if (cudaMallocFromPoolAsync(&none, 4096, pool, stream) == cudaSuccess) Program::fail("an imported pool gives memory");
    cudaGetLastError();
    peer.meet();
    peer.meet();
    if (contained) {
        // Its exporter has freed one, which is imported here.
        fill<<<blocks(SIZES[2] / 4), 256, 0, stream>>>(words[2], SIZES[2] / 4, 0xBADBADu);
        CHECK(cudaStreamSynchronize(stream));
        unsigned word;
        if (cudaMemcpy(&word, words[2], sizeof word, cudaMemcpyDeviceToHost) == cudaSuccess) {
            Program::fail("memory that was freed can still be read");
        }
        cudaGetLastError();
        if (cudaMemPoolImportPointer(&none, pool, &exported[2]) == cudaSuccess) {
            Program::fail("memory that was freed was imported");
        }
        cudaGetLastError();
    }
    CHECK(cudaFreeAsync(words[0], stream));
    CHECK(cudaFreeAsync(words[2], stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(words[1]));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaMemPoolDestroy(other));
    CHECK(cudaStreamDestroy(stream));
    peer.meet();
}

static void give(const Peer &peer, bool contained) {
    unsigned *words[COUNT];
    cudaMemPoolPtrExportData exported[COUNT];
    cudaStream_t stream;
    int kinds = 0;
    CHECK(cudaDeviceGetAttribute(&kinds, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
    if ((kinds & KIND) == 0) Program::fail("pools are not shared: %d", kinds);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const cudaMemPool_t pool = make_pool(), other = make_pool();
    size_t all = 0;
    for (int k = 0; k < COUNT; k++) {
        CHECK(cudaMallocFromPoolAsync(&words[k], SIZES[k], pool, stream));
        fill_all(words[k], SIZES[k], 100 + k, stream);
        CHECK(cudaMemPoolExportPointer(&exported[k], words[k]));
        all += SIZES[k];
    }
    size_t used = 0;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    if (used < all) Program::fail("%zu of %zu bytes are used", used, all);
    give_pool(peer, pool);
    give_pool(peer, other);
    peer.send(exported, sizeof exported);
    peer.meet();
    for (int k = 0; k < COUNT; k++) verify_all(words[k], SIZES[k], 200 + k, stream, "the exporter reads");
    std::vector<unsigned *> next;
    if (contained) {
        CHECK(cudaFreeAsync(words[2], stream));
        CHECK(cudaStreamSynchronize(stream));
        // It is somebody's again, and nobody else's: the importer writes it meanwhile.
        for (int k = 0; k < 4; k++) {
            unsigned *one;
            CHECK(cudaMallocAsync(&one, SIZES[2], stream));
            fill_all(one, SIZES[2], 400 + k, stream);
            next.push_back(one);
        }
    }
    peer.meet();
    peer.meet();
    for (size_t k = 0; k < next.size(); k++) {
        verify_all(next[k], SIZES[2], 400 + static_cast<unsigned>(k), stream, "the next owner reads");
        CHECK(cudaFreeAsync(next[k], stream));
    }
    for (int k = 0; k < (contained ? 2 : 3); k++) CHECK(cudaFreeAsync(words[k], stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaMemPoolDestroy(other));
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv) {
    const Program program("shared_pool", argc, argv);
    // On NVIDIA's own driver the exporter frees last; the rest is undefined.
    const bool contained = is_contained();
    const Second importer([&](const Peer &peer) { import(peer, contained); });
    give(importer.peer, contained);
    importer.join();
    return Program::pass("sizes=%d", COUNT);
}
