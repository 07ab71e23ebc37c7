// Warps that wait for some of their block only: numbered barriers with a count of threads, as CUDA's intrinsics and inline
// assembly have them.
#include "program.h"

#include <vector>

constexpr int WARP = 32;
constexpr int HALF = 4 * WARP;
constexpr int STAGES = 2;

__device__ void wait_at(int number, int count) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(count) : "memory");
}

__device__ void arrive_at(int number, int count) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(count) : "memory");
}

__device__ int count_at(int number, int count, bool holds) {
    int all;
    asm volatile(
        "{ .reg .pred p;\n"
        "setp.ne.s32 p, %3, 0;\n"
        "barrier.red.popc.u32 %0, %1, %2, p; }"
        : "=r"(all)
        : "r"(number), "r"(count), "r"(static_cast<int>(holds))
        : "memory");
    return all;
}

// Half of a block loads tiles while the other half adds them up: two barriers for each of two stages.
__global__ void specialised(const unsigned *from, unsigned *sums, int tiles) {
    __shared__ unsigned stage[STAGES][HALF];
    const int mine = threadIdx.x % HALF;
    if (threadIdx.x < HALF) {
        for (int i = 0; i < tiles; i++) {
            if (i >= STAGES) wait_at(1 + STAGES + i % STAGES, 2 * HALF);
            stage[i % STAGES][mine] = from[i * HALF + mine];
            arrive_at(1 + i % STAGES, 2 * HALF);
        }
    } else {
        unsigned sum = 0;
        for (int i = 0; i < tiles; i++) {
            wait_at(1 + i % STAGES, 2 * HALF);
            for (int j = 0; j < 4; j++) sum = hash(sum + stage[i % STAGES][(mine * 3 + j * 7) % HALF]);
            if (i + STAGES < tiles) arrive_at(1 + STAGES + i % STAGES, 2 * HALF);
        }
        sums[blockIdx.x * HALF + mine] = sum;
    }
}

// Pairs of warps go their own pace; now and then all of the block meet.
__global__ void pairs(unsigned *sums, int turns) {
    __shared__ unsigned words[2 * HALF];
    const int pair = threadIdx.x / (2 * WARP), other = threadIdx.x ^ WARP;
    unsigned sum = threadIdx.x + 1000 * blockIdx.x;
    for (int i = 0; i < turns; i++) {
        for (int j = 0; j <= pair; j++) {
            words[threadIdx.x] = sum;
            asm volatile("barrier.sync %0, 64;" ::"r"(8 + pair) : "memory");
            sum = hash(sum + words[other]);
            sum += count_at(12 + pair, 2 * WARP, sum % 3 == 0);
        }
        words[threadIdx.x] = sum;
        __syncthreads();
        sum ^= words[(threadIdx.x + 2 * WARP) % (2 * HALF)];
        asm volatile("bar.sync 3;" ::: "memory");
    }
    sums[blockIdx.x * 2 * HALF + threadIdx.x] = sum;
}

static std::vector<unsigned> download(const unsigned *sums, size_t count) {
    std::vector<unsigned> found(count);
    CHECK(cudaMemcpy(found.data(), sums, count * sizeof(unsigned), cudaMemcpyDeviceToHost));
    return found;
}

static void compare(const char *what, const std::vector<unsigned> &found, const std::vector<unsigned> &expected) {
    for (size_t i = 0; i < expected.size(); i++) {
        if (found[i] != expected[i]) Program::fail("%s: sums[%zu] = %u, not %u", what, i, found[i], expected[i]);
    }
}

static std::vector<unsigned> paired(int blocks, int turns) {
    std::vector<unsigned> all;
    for (int block = 0; block < blocks; block++) {
        std::vector<unsigned> sums(2 * HALF);
        for (int i = 0; i < 2 * HALF; i++) sums[i] = i + 1000 * block;
        for (int turn = 0; turn < turns; turn++) {
            for (int pair = 0; pair < 4; pair++) {
                unsigned *own = &sums[pair * 2 * WARP];
                for (int j = 0; j <= pair; j++) {
                    const std::vector<unsigned> before(own, own + 2 * WARP);
                    unsigned thirds = 0;
                    for (int i = 0; i < 2 * WARP; i++) {
                        own[i] = hash(before[i] + before[i ^ WARP]);
                        thirds += own[i] % 3 == 0;
                    }
                    for (int i = 0; i < 2 * WARP; i++) own[i] += thirds;
                }
            }
            const std::vector<unsigned> before = sums;
            for (int i = 0; i < 2 * HALF; i++) sums[i] ^= before[(i + 2 * WARP) % (2 * HALF)];
        }
        all.insert(all.end(), sums.begin(), sums.end());
    }
    return all;
}

int main(int argc, char **argv) {
    const Program program("named_barriers", argc, argv);
    const int blocks = program.large ? 264 : 3, tiles = program.large ? 5000 : 17, turns = program.large ? 500 : 5;
    std::vector<unsigned> values(static_cast<size_t>(tiles) * HALF), expected;
    for (size_t i = 0; i < values.size(); i++) values[i] = hash(static_cast<unsigned>(i));
    unsigned *from, *sums;
    CHECK(cudaMalloc(&from, values.size() * sizeof(unsigned)));
    CHECK(cudaMalloc(&sums, blocks * 2 * HALF * sizeof(unsigned)));
    CHECK(cudaMemcpy(from, values.data(), values.size() * sizeof(unsigned), cudaMemcpyHostToDevice));
    specialised<<<blocks, 2 * HALF>>>(from, sums, tiles);
    CHECK_KERNEL();
    for (int at = 0; at < blocks * HALF; at++) {
        unsigned sum = 0;
        for (int i = 0; i < tiles; i++) {
            for (int j = 0; j < 4; j++) sum = hash(sum + values[i * HALF + (at % HALF * 3 + j * 7) % HALF]);
        }
        expected.push_back(sum);
    }
    compare("specialised", download(sums, blocks * HALF), expected);
    pairs<<<blocks, 2 * HALF>>>(sums, turns);
    CHECK_KERNEL();
    compare("pairs", download(sums, blocks * 2 * HALF), paired(blocks, turns));
    CHECK(cudaFree(sums));
    CHECK(cudaFree(from));
    return Program::pass("%d blocks, %d tiles, %d turns", blocks, tiles, turns);
}
