// Rows in shared memory that take turns, gone through up to a parameter: as long as a row, and longer, where what lies
// beyond a row is left out.
#include "program.h"

#include <vector>

constexpr int row = 130, beyond = 1000;

__global__ void waves(int length, int turns, const int *heights, unsigned *to) {
    __shared__ unsigned rows[3][row];
    unsigned *older = rows[0], *old = rows[1], *own = rows[2], seen = 0;
    for (int i = threadIdx.x; i < row; i += blockDim.x) older[i] = old[i] = own[i] = i;
    __syncthreads();
    for (int turn = 0; turn < turns; turn++) {
        for (int i = threadIdx.x; i <= length; i += blockDim.x) {
            seen++;
            if (heights[i] < 0) continue;
            if (i == 0) own[i] = turn;
            else own[i] = heights[i] + older[i - 1] + (old[i - 1] ^ old[i]);
        }
        __syncthreads();
        unsigned *const spare = older;
        older = old, old = own, own = spare;
    }
    for (int i = threadIdx.x; i < row; i += blockDim.x) to[i] = old[i];
    atomicAdd(&to[row], seen);
}

static void turn_and_check(int length, int turns) {
    std::vector<int> heights(beyond + 1);
    for (int i = 0; i <= beyond; i++) heights[i] = i < row ? static_cast<int>(hash(i) % 100) : -1;
    std::vector<unsigned> values(row + 1);
    int *from;
    unsigned *to;
    CHECK(cudaMalloc(&from, heights.size() * sizeof(int)));
    CHECK(cudaMalloc(&to, values.size() * sizeof(unsigned)));
    CHECK(cudaMemcpy(from, heights.data(), heights.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(to, 0, values.size() * sizeof(unsigned)));
    waves<<<1, 64>>>(length, turns, from, to);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values.data(), to, values.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    std::vector<unsigned> older(row), old(row), own(row);
    for (int i = 0; i < row; i++) older[i] = old[i] = own[i] = i;
    for (int turn = 0; turn < turns; turn++) {
        for (int i = 0; i <= length && i < row; i++) {
            own[i] = i == 0 ? turn : heights[i] + older[i - 1] + (old[i - 1] ^ old[i]);
        }
        older.swap(old), old.swap(own);
    }
    for (int i = 0; i < row; i++) {
        if (values[i] != old[i]) Program::fail("up to %d: row[%d] = %u, not %u", length, i, values[i], old[i]);
    }
    const unsigned seen = length < 0 ? 0 : turns * (length + 1);
    if (values[row] != seen) Program::fail("up to %d: %u turns, not %u", length, values[row], seen);
}

int main(int argc, char **argv) {
    const Program program("bounded", argc, argv);
    const int turns = program.large ? 3000 : 7;
    for (const int length : {-1, 0, 1, 63, 64, 100, 129, 200, 255, 256, 300, beyond}) turn_and_check(length, turns);
    return Program::pass("up to %d, %d turns", beyond, turns);
}
