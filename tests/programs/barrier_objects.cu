// Threads that hand work to one another by barrier objects in shared memory: cuda::barrier, the primitives of CUDA C++, and
// phases by their parity.
// nvcc: -std=c++17 -gencode arch=compute_90,code=[sm_90,compute_90]
#include "program.h"

#include <cuda/barrier>
#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline.h>

#include <vector>

using Barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int WARP = 32;
constexpr int CONSUMERS = 3 * WARP;
constexpr int STAGES = 4;

__host__ __device__ inline unsigned mixed(unsigned word) {
    word ^= word >> 16;
    word *= 0x7feb352dU;
    word ^= word >> 15;
    return word * 0x846ca68bU;
}

// The first warp fills one of two tiles while the others add up the other one.
__global__ void handed_on(const unsigned *from, unsigned *sums, int tiles) {
    __shared__ unsigned tile[2][CONSUMERS];
    __shared__ alignas(Barrier) unsigned char memory[4][sizeof(Barrier)];
    Barrier *filled = reinterpret_cast<Barrier *>(memory[0]), *free = reinterpret_cast<Barrier *>(memory[2]);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            init(&filled[i], blockDim.x);
            init(&free[i], blockDim.x);
        }
    }
    __syncthreads();
    if (threadIdx.x < WARP) {
        for (int i = 0; i < tiles; i++) {
            if (i >= 2) free[i % 2].arrive_and_wait();
            for (int at = threadIdx.x; at < CONSUMERS; at += WARP) tile[i % 2][at] = from[i * CONSUMERS + at];
            (void)filled[i % 2].arrive();
        }
        return;
    }
    int mine = threadIdx.x - WARP;
    unsigned sum = 0;
    for (int i = 0; i < tiles; i++) {
        filled[i % 2].arrive_and_wait();
        for (int j = 0; j < 8; j++) sum = mixed(sum + tile[i % 2][(mine + j) % CONSUMERS]);
        if (i + 2 < tiles) (void)free[i % 2].arrive();
    }
    sums[mine] = sum;
}

__device__ void await(unsigned long long *object, unsigned parity) {
    asm volatile(
        "{ .reg .pred p;\n"
        "again: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1, 10000000;\n"
        "@!p bra again; }" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(object))), "r"(parity) : "memory");
}

__device__ void arrive(unsigned long long *object) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(object)))
                 : "memory");
}

// A ring of stages: who has filled them all goes on where the others have emptied one.
__global__ void round_about(const unsigned *from, unsigned *sums, int tiles) {
    __shared__ unsigned ring[STAGES][WARP];
    __shared__ unsigned long long filled[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            __mbarrier_init(reinterpret_cast<__mbarrier_t *>(&filled[i]), WARP);
            __mbarrier_init(reinterpret_cast<__mbarrier_t *>(&empty[i]), CONSUMERS);
        }
    }
    __syncthreads();
    unsigned sum = 0;
    for (int i = 0; i < tiles; i++) {
        int stage = i % STAGES;
        unsigned parity = i / STAGES & 1;
        if (threadIdx.x < WARP) {
            // The phase before the first counts as over.
            await(&empty[stage], parity ^ 1);
            ring[stage][threadIdx.x] = from[i * WARP + threadIdx.x];
            arrive(&filled[stage]);
        } else {
            await(&filled[stage], parity);
            for (int j = 0; j < 4; j++) sum = mixed(sum ^ ring[stage][(threadIdx.x + j) % WARP]);
            arrive(&empty[stage]);
        }
    }
    if (threadIdx.x >= WARP) sums[threadIdx.x - WARP] = sum;
}

// Each phase waits for its copies; after it a thread fewer takes part.
__global__ void fewer_each_time(const unsigned *from, unsigned *sums, int phases) {
    __shared__ unsigned tile[CONSUMERS];
    __shared__ __mbarrier_t object;
    if (threadIdx.x == 0) __mbarrier_init(&object, blockDim.x);
    __syncthreads();
    unsigned sum = 0;
    for (int i = 0; i < phases; i++) {
        __pipeline_memcpy_async(&tile[threadIdx.x], &from[(i * CONSUMERS + threadIdx.x) % (2 * CONSUMERS)], sizeof(unsigned));
        __pipeline_arrive_on(&object);
        __mbarrier_token_t token = __mbarrier_arrive(&object);
        while (!__mbarrier_test_wait(&object, token)) {}
        int left = static_cast<int>(blockDim.x) - i;
        for (int j = 0; j < 4; j++) sum = mixed(sum + tile[(threadIdx.x * 5 + j) % left]);
        if (static_cast<int>(threadIdx.x) == left - 1) {
            (void)__mbarrier_arrive_and_drop(&object);
            break;
        }
        token = __mbarrier_arrive(&object);
        while (!__mbarrier_try_wait(&object, token, 1000)) {}
    }
    sums[threadIdx.x] = sum;
}

static std::vector<unsigned> download(const unsigned *from, int count) {
    std::vector<unsigned> words(count);
    CHECK(cudaMemcpy(words.data(), from, count * sizeof(unsigned), cudaMemcpyDeviceToHost));
    return words;
}

static void compare(const char *what, const std::vector<unsigned> &found, const std::vector<unsigned> &expected) {
    for (size_t i = 0; i < expected.size(); i++) {
        if (found[i] != expected[i]) Program::fail("%s: sums[%zu] = %u, not %u", what, i, found[i], expected[i]);
    }
}

int main(int argc, char **argv) {
    const Program program("barrier_objects", argc, argv);
    const int tiles = program.large ? 20000 : 23, phases = 20;
    std::vector<unsigned> values(static_cast<size_t>(tiles) * CONSUMERS), expected(CONSUMERS);
    for (size_t i = 0; i < values.size(); i++) values[i] = mixed(static_cast<unsigned>(i) + 1);
    unsigned *from, *sums;
    CHECK(cudaMalloc(&from, values.size() * sizeof(unsigned)));
    CHECK(cudaMalloc(&sums, CONSUMERS * sizeof(unsigned)));
    CHECK(cudaMemcpy(from, values.data(), values.size() * sizeof(unsigned), cudaMemcpyHostToDevice));

    handed_on<<<1, WARP + CONSUMERS>>>(from, sums, tiles);
    CHECK_KERNEL();
    for (int mine = 0; mine < CONSUMERS; mine++) {
        unsigned sum = 0;
        for (int i = 0; i < tiles; i++) {
            for (int j = 0; j < 8; j++) sum = mixed(sum + values[i * CONSUMERS + (mine + j) % CONSUMERS]);
        }
        expected[mine] = sum;
    }
    compare("handed_on", download(sums, CONSUMERS), expected);

    round_about<<<1, WARP + CONSUMERS>>>(from, sums, tiles);
    CHECK_KERNEL();
    for (int mine = 0; mine < CONSUMERS; mine++) {
        unsigned sum = 0;
        for (int i = 0; i < tiles; i++) {
            for (int j = 0; j < 4; j++) sum = mixed(sum ^ values[i * WARP + (mine + j) % WARP]);
        }
        expected[mine] = sum;
    }
    compare("round_about", download(sums, CONSUMERS), expected);

    fewer_each_time<<<1, CONSUMERS>>>(from, sums, phases);
    CHECK_KERNEL();
    for (int mine = 0; mine < CONSUMERS; mine++) {
        unsigned sum = 0;
        for (int i = 0; i < phases && mine < CONSUMERS - i; i++) {
            int left = CONSUMERS - i;
            for (int j = 0; j < 4; j++) {
                sum = mixed(sum + values[(i * CONSUMERS + (mine * 5 + j) % left) % (2 * CONSUMERS)]);
            }
        }
        expected[mine] = sum;
    }
    compare("fewer_each_time", download(sums, CONSUMERS), expected);
    CHECK(cudaFree(from));
    CHECK(cudaFree(sums));
    return Program::pass("%d tiles, %d phases", tiles, phases);
}
