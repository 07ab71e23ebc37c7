// nvcc: -rdc=true -x cu {sources}/relocatable.h
// Two units that nvcc compiles apart: functions, variables, tables and kernels of each other, weak functions that both have,
// and functions and variables of their own by the same names.
#include "program.h"

extern __device__ int counter;
extern __constant__ float table[4];
extern __device__ int squared(int x);
extern __device__ int through(int (*function)(int), int x);
extern __device__ int (*pointer_to_own)(int);
extern __shared__ int dynamic[];
void launch_second(int *out);
int host_counter();

template <class T> __device__ __noinline__ T tripled(T x) { return x * 3; }

static __device__ __noinline__ int own(int x) { return x + 1; }
static __device__ int base = 5;

__global__ void first(int *out) {
    int i = threadIdx.x;
    dynamic[i] = squared(i) + own(tripled(i)) + base + static_cast<int>(table[i]);
    __syncthreads();
    out[i] = dynamic[(i + 1) % blockDim.x];
    if (i == 0) {
        out[4] = through(own, 10);
        out[5] = through(pointer_to_own, 10);
        atomicAdd(&counter, 1);
    }
}

int main(int argc, char **argv) {
    Program program("relocatable", argc, argv);
    int *out;
    CHECK(cudaMalloc(&out, 7 * sizeof(int)));
    first<<<1, 4, 4 * sizeof(int)>>>(out);
    CHECK(cudaGetLastError());
    launch_second(out + 6);
    CHECK(cudaGetLastError());
    int got[7];
    CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    auto expected = [](int i) { return i * i * 3 + i * 3 + 1 + 5 + i + 1; };
    for (int i = 0; i < 4; ++i) {
        int wanted = expected((i + 1) % 4);
        if (got[i] != wanted) Program::fail("first[%d] is %d, not %d", i, got[i], wanted);
    }
    if (got[4] != 61 || got[5] != 160) Program::fail("through pointers %d and %d, not 61 and 160", got[4], got[5]);
    if (got[6] != 8 + 101 + 50) Program::fail("second gives %d, not 159", got[6]);
    if (host_counter() != 8) Program::fail("the counter is %d, not 8", host_counter());
    CHECK(cudaFree(out));
    return Program::pass("2 units, 7 values");
}
