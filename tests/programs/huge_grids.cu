// Grids of more blocks than a device is given at once: every block runs once and knows its place, and the last of them, by a
// ticket, sees what all others left.
#include "program.h"

struct Sums {
    unsigned long long blocks, places, seen;
    unsigned tickets;
    dim3 grid;
};

__global__ void count(unsigned char *counts, Sums *sums) {
    const unsigned long long place =
        (static_cast<unsigned long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    counts[place]++;
    atomicAdd(&sums->blocks, 1ull);
    atomicAdd(&sums->places, place);
    __threadfence();
    const unsigned ticket = atomicAdd(&sums->tickets, 1u);
    if (ticket == gridDim.x * gridDim.y * gridDim.z - 1) {
        sums->seen = *static_cast<volatile unsigned long long *>(&sums->blocks);
        sums->grid = gridDim;
    }
}

__global__ void empty() {}

// Milliseconds that a grid takes.
template <typename Launch>
static float timed(Launch launch) {
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(start));
    launch();
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float milliseconds;
    CHECK(cudaEventElapsedTime(&milliseconds, start, end));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    return milliseconds;
}

static void check(const dim3 grid) {
    const unsigned long long blocks = static_cast<unsigned long long>(grid.x) * grid.y * grid.z;
    unsigned char *counts, *found = static_cast<unsigned char *>(std::malloc(blocks));
    Sums *sums, left;
    CHECK(cudaMalloc(&counts, blocks));
    CHECK(cudaMalloc(&sums, sizeof(Sums)));
    CHECK(cudaMemset(counts, 0, blocks));
    CHECK(cudaMemset(sums, 0, sizeof(Sums)));
    const float milliseconds = timed([&] { count<<<grid, 1>>>(counts, sums); });
    CHECK(cudaMemcpy(found, counts, blocks, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&left, sums, sizeof left, cudaMemcpyDeviceToHost));
    for (unsigned long long place = 0; place < blocks; place++) {
        if (found[place] != 1) Program::fail("block %llu of %llu ran %u times", place, blocks, found[place]);
    }
    if (left.blocks != blocks || left.seen != blocks) {
        Program::fail("%llu blocks, and the last saw %llu, of %llu", left.blocks, left.seen, blocks);
    }
    if (left.places != blocks * (blocks - 1) / 2) Program::fail("the places of %llu blocks are wrong", blocks);
    if (left.grid.x != grid.x || left.grid.y != grid.y || left.grid.z != grid.z) {
        Program::fail("a grid of %u x %u x %u", left.grid.x, left.grid.y, left.grid.z);
    }
    std::printf("%u x %u x %u blocks that count: %.2f ms\n", grid.x, grid.y, grid.z, milliseconds);
    CHECK(cudaFree(counts));
    CHECK(cudaFree(sums));
    std::free(found);
}

int main(int argc, char **argv) {
    const Program program("huge_grids", argc, argv);
    if (program.large) {
        check(dim3(100000001));
        check(dim3(501, 601, 307));
        // Whole, in two slices of half a launch's blocks each and one block, and all that the first side has.
        for (const unsigned blocks : {1u << 22, (1u << 22) + 1, 0x7fffffffu}) {
            const float milliseconds = timed([&] { empty<<<blocks, 32>>>(); });
            std::printf("%u empty blocks: %.2f ms, %.0f million a second\n", blocks, milliseconds,
                        blocks / milliseconds / 1e3f);
        }
        return Program::pass("grids of up to 2^31 blocks");
    }
    check(dim3(20011));
    check(dim3(31, 17, 43));
    return Program::pass("grids of up to 22661 blocks");
}
