// A bulk copy to shared memory, which says by a barrier object that it is done.
// nvcc: -gencode arch=compute_90,code=[sm_90,compute_90]
#include "../program.h"


#include <vector>

constexpr int N = 256;

__global__ void turn(const unsigned *from, unsigned *to) {
    __shared__ __align__(16) unsigned tile[N];
    __shared__ __align__(8) unsigned long long done;
    const unsigned at = __cvta_generic_to_shared(tile), barrier = __cvta_generic_to_shared(&done);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier));
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(unsigned(sizeof(tile))));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at),
                     "l"(__cvta_generic_to_global(from)), "r"(unsigned(sizeof(tile))), "r"(barrier)
                     : "memory");
    }
    __syncthreads();
    unsigned ready = 0;
    while (!ready) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ready) : "r"(barrier) : "memory");
    }
    to[threadIdx.x] = tile[N - 1 - threadIdx.x];
}

int main(int argc, char **argv) {
    const Program program("bulk_copy", argc, argv);
    std::vector<unsigned> values(N);
    for (int i = 0; i < N; i++) values[i] = hash(i);
    unsigned *from, *to;
    CHECK(cudaMalloc(&from, N * sizeof(unsigned)));
    CHECK(cudaMalloc(&to, N * sizeof(unsigned)));
    CHECK(cudaMemcpy(from, values.data(), N * sizeof(unsigned), cudaMemcpyHostToDevice));
    turn<<<1, N>>>(from, to);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values.data(), to, N * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) {
        if (values[i] != hash(N - 1 - i)) Program::fail("values[%d] = %u, not %u", i, values[i], hash(N - 1 - i));
    }
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    return Program::pass("%d words", N);
}
