// What CUB has for one block and one warp: load and store in all their ways, scan, sort, exchange, reduction.
#include "compare.h"

#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_reduce.cuh>

#include <algorithm>

constexpr int THREADS = 128, ITEMS = 7, TILE = THREADS * ITEMS;

template <cub::BlockLoadAlgorithm LOAD, cub::BlockStoreAlgorithm STORE>
__global__ void pass_on(const int *from, int *to, int n) {
    using Load = cub::BlockLoad<int, THREADS, ITEMS, LOAD>;
    using Store = cub::BlockStore<int, THREADS, ITEMS, STORE>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Store::TempStorage store;
    } storage;
    const int base = blockIdx.x * TILE, valid = min(TILE, n - base);
    int items[ITEMS];
    Load(storage.load).Load(from + base, items, valid, 0);
    __syncthreads();
    for (int &item : items) item = 3 * item + 1;
    Store(storage.store).Store(to + base, items, valid);
}

__global__ void sort_and_scan(const int *from, int *sorted, int *scanned, int *sums, int *warp_sums) {
    using Sort = cub::BlockRadixSort<int, THREADS, ITEMS>;
    using Scan = cub::BlockScan<int, THREADS, cub::BLOCK_SCAN_WARP_SCANS>;
    using Reduce = cub::BlockReduce<int, THREADS, cub::BLOCK_REDUCE_RAKING>;
    using Warp = cub::WarpReduce<int>;
    __shared__ union {
        typename Sort::TempStorage sort;
        typename Scan::TempStorage scan;
        typename Reduce::TempStorage reduce;
        typename Warp::TempStorage warp[THREADS / 32];
    } storage;
    const int base = blockIdx.x * TILE;
    int items[ITEMS];
    cub::LoadDirectBlocked(threadIdx.x, from + base, items);
    Sort(storage.sort).Sort(items);
    cub::StoreDirectBlocked(threadIdx.x, sorted + base, items);
    __syncthreads();
    int prefixes[ITEMS];
    Scan(storage.scan).InclusiveSum(items, prefixes);
    cub::StoreDirectBlocked(threadIdx.x, scanned + base, prefixes);
    __syncthreads();
    const int sum = Reduce(storage.reduce).Sum(items);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    __syncthreads();
    const int warp_sum = Warp(storage.warp[threadIdx.x / 32]).Sum(items[0]);
    if (threadIdx.x % 32 == 0) warp_sums[blockIdx.x * (THREADS / 32) + threadIdx.x / 32] = warp_sum;
}

template <cub::BlockLoadAlgorithm LOAD, cub::BlockStoreAlgorithm STORE>
void passed_on(const char *what, int n) {
    std::vector<int> host(n), should(n);
    for (int i = 0; i < n; i++) should[i] = 3 * (host[i] = hash(i) >> 8) + 1;
    thrust::device_vector<int> device(host.begin(), host.end()), to(n);
    pass_on<LOAD, STORE><<<(n + TILE - 1) / TILE, THREADS>>>(raw(device), raw(to), n);
    CHECK_KERNEL();
    same(what, fetched(to), should);
}

int main(int argc, char **argv) {
    const Program program("cub_block", argc, argv);
    const int blocks = program.large ? 10007 : 23, n = blocks * TILE;
    passed_on<cub::BLOCK_LOAD_DIRECT, cub::BLOCK_STORE_DIRECT>("direct", n - 13);
    passed_on<cub::BLOCK_LOAD_STRIPED, cub::BLOCK_STORE_STRIPED>("striped", n - 13);
    passed_on<cub::BLOCK_LOAD_VECTORIZE, cub::BLOCK_STORE_VECTORIZE>("vectorized", n);
    passed_on<cub::BLOCK_LOAD_TRANSPOSE, cub::BLOCK_STORE_TRANSPOSE>("transposed", n - 13);
    passed_on<cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE>("transposed by warps", n - 13);

    std::vector<int> host(n), sums(blocks), scanned(n), warps(blocks * THREADS / 32);
    for (int i = 0; i < n; i++) host[i] = static_cast<int>(hash(i) % 20001) - 10000;
    thrust::device_vector<int> device(host.begin(), host.end()), to(n), prefixes(n), totals(blocks), warp_totals(warps.size());
    sort_and_scan<<<blocks, THREADS>>>(raw(device), raw(to), raw(prefixes), raw(totals), raw(warp_totals));
    CHECK_KERNEL();
    for (int block = 0; block < blocks; block++) {
        std::sort(host.begin() + block * TILE, host.begin() + (block + 1) * TILE);
        for (int i = block * TILE; i < (block + 1) * TILE; i++) {
            scanned[i] = sums[block] += host[i];
            if (i % TILE % ITEMS == 0) warps[block * (THREADS / 32) + i % TILE / ITEMS / 32] += host[i];
        }
    }
    same("sorted", fetched(to), host);
    same("scanned", fetched(prefixes), scanned);
    same("sums", fetched(totals), sums);
    same("sums of warps", fetched(warp_totals), warps);
    return Program::pass("%d blocks", blocks);
}
