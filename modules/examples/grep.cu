// Counts how often a pattern occurs in a file that kernels read themselves, which may be larger than the GPU's memory.
//
//   nvcc -gencode arch=compute_75,code=compute_75 -I modules/storage/include -o grep modules/examples/grep.cu
//   bulkhead run --module storage=read:data -- ./grep PATTERN BYTES      # of the namespace `data`
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <bulkhead_storage.cuh>

using storage::u32;
using storage::u64;

#define CHECK(call)                                                        \
    do {                                                                   \
        cudaError_t error = (call);                                        \
        if (error != cudaSuccess) {                                        \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
            exit(2);                                                       \
        }                                                                  \
    } while (0)

constexpr u32 WARPS = 64, PATTERN_MAX = 256;
// A warp looks at what begins in seven blocks, of eight that it reads: what begins there ends there.
constexpr u32 STEP = storage::BLOCKS_MAX - 1, READ_BYTES = storage::BLOCKS_MAX * storage::BLOCK_BYTES;

struct Found {
    u64 count;
    u32 code;
};

__global__ void grep(const char *pattern, u32 length, u64 bytes, ulonglong2 *buffers, Found *found) {
    const u32 lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    char *text = reinterpret_cast<char *>(buffers) + warp * READ_BYTES;
    const u64 blocks = (bytes + storage::BLOCK_BYTES - 1) / storage::BLOCK_BYTES;
    u64 count = 0;
    for (u64 first = static_cast<u64>(warp) * STEP; first < blocks; first += WARPS * STEP) {
        const u32 read = static_cast<u32>(min(blocks - first, static_cast<u64>(storage::BLOCKS_MAX)));
        u32 code = storage::DONE;
        if (read == storage::BLOCKS_MAX) {
            code = storage::read_warp(0, first, text);
        } else if (lane == 0) {
            code = storage::read(0, first, read, text);
        }
        __syncwarp();
        if (code != storage::DONE) found->code = code;
        const u64 there = min(bytes - first * storage::BLOCK_BYTES, static_cast<u64>(READ_BYTES));
        for (u32 at = lane; at < STEP * storage::BLOCK_BYTES && at + length <= there; at += 32) {
            u32 same = 0;
            while (same < length && text[at + same] == pattern[same]) same++;
            count += same == length;
        }
        __syncwarp();
    }
    if (count > 0) atomicAdd(&found->count, count);
}

int main(int argc, char **argv) {
    const u32 length = argc == 3 ? static_cast<u32>(strlen(argv[1])) : 0;
    if (length == 0 || length > PATTERN_MAX) {
        fprintf(stderr, "usage: grep PATTERN BYTES, with a pattern of 1 to %u bytes\n", PATTERN_MAX);
        return 2;
    }
    char *pattern;
    ulonglong2 *buffers;
    Found *found, host = {};
    CHECK(cudaMalloc(&pattern, length));
    CHECK(cudaMalloc(&buffers, WARPS * READ_BYTES));
    CHECK(cudaMalloc(&found, sizeof *found));
    CHECK(cudaMemcpy(pattern, argv[1], length, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(found, 0, sizeof *found));
    grep<<<WARPS / 4, 128>>>(pattern, length, strtoull(argv[2], nullptr, 0), buffers, found);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&host, found, sizeof host, cudaMemcpyDeviceToHost));
    if (host.code != storage::DONE) {
        fprintf(stderr, "a read was answered %x, %s\n", host.code, storage::meaning(host.code));
        return 2;
    }
    printf("%llu\n", host.count);
    return host.count > 0 ? 0 : 1;
}
