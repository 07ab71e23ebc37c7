// Accesses that go astray in every way that `bulkhead run --check` tells; without it nobody is told, and they reach
// nobody else's memory. Natively a program like this ends with an error.
// nvcc: -lineinfo
#include "program.h"

constexpr int N = 100;
constexpr int THREADS = 32;

__device__ int table[16];

__global__ void fine(const int *from, int *to) {
    __shared__ int tile[THREADS];
    tile[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 16) table[threadIdx.x] = tile[THREADS - 1 - threadIdx.x];
    to[threadIdx.x] = tile[THREADS - 1 - threadIdx.x] + table[threadIdx.x % 16];
    atomicAdd(&to[N - 1], 1);
}

__global__ void reads_beyond(const int *from, int *to, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) to[i % 8] = from[i]; // read beyond
}

__global__ void writes_before(int *to) {
    if (threadIdx.x == 3) to[-1] = 7; // write before
}

__global__ void counts_far(int *to) {
    if (threadIdx.x == 0) atomicAdd(to + (1ull << 33), 1); // atomic far away
}

__global__ void misaligned(char *to) {
    if (threadIdx.x == 1) *reinterpret_cast<int *>(to + 2) = 9; // misaligned
}

__global__ void shared_beyond(int *to, int index) {
    __shared__ int tile[THREADS];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 5) to[0] = tile[index]; // shared beyond
}

__global__ void after_free(const int *from, int *to) {
    if (threadIdx.x == 0) to[0] = from[0]; // after free
}

int main(int argc, char **argv) {
    const Program program("out_of_range", argc, argv);
    int *values, *more, *pinned;
    CHECK(cudaMalloc(&values, N * sizeof(int)));
    CHECK(cudaMalloc(&more, N * sizeof(int)));
    CHECK(cudaMallocHost(&pinned, N * sizeof(int)));
    CHECK(cudaMemset(values, 0, N * sizeof(int)));
    fine<<<4, THREADS>>>(values, more);
    fine<<<4, THREADS>>>(pinned, more);
    CHECK_KERNEL();
    if (argc > 2 && std::strcmp(argv[2], "fine") == 0) return Program::pass("nothing astray");
    reads_beyond<<<4, THREADS>>>(values, more, N);
    writes_before<<<1, THREADS>>>(values);
    counts_far<<<1, THREADS>>>(values);
    misaligned<<<1, THREADS>>>(reinterpret_cast<char *>(values));
    shared_beyond<<<1, THREADS>>>(more, 40);
    CHECK_KERNEL();
    CHECK(cudaFree(values));
    // Nobody waits for this one.
    after_free<<<1, THREADS>>>(values, more);
    return Program::pass("six accesses astray");
}
