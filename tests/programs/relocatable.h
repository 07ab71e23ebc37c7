// The second unit of relocatable.cu, which defines what that names and has things of its own by the same names.
#include <cuda_runtime.h>

__device__ int counter = 7;
__constant__ float table[4] = {1, 2, 3, 4};

template <class T> __device__ __noinline__ T tripled(T x) { return x * 3; }

static __device__ __noinline__ int own(int x) { return x + 100; }
static __device__ int base = 50;

__device__ __noinline__ int squared(int x) { return x * x * tripled(1); }
__device__ int through(int (*function)(int), int x) { return function(x) + base; }
__device__ int (*pointer_to_own)(int) = own;

__global__ void second(int *out) { *out = counter + own(1) + base; }

void launch_second(int *out) { second<<<1, 1>>>(out); }
int host_counter() {
    int value = 0;
    return cudaMemcpyFromSymbol(&value, counter, sizeof value) == cudaSuccess ? value : -1;
}
