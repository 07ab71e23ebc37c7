// A tenant of the counter, as it comes from nvcc:
//   nvcc -gencode arch=compute_75,code=compute_75 -o tenant tenant.cu
//   bulkhead run --module counter=limit=10 -- ./tenant
#include <cstdio>

extern "C" __device__ unsigned counter_add(unsigned key, unsigned long long by, unsigned long long *before);
extern "C" __device__ unsigned counter_get(unsigned key, unsigned long long *value);

// Every thread adds 2 to one of 16 counters.
__global__ void add(unsigned *codes) {
    unsigned long long before;
    codes[threadIdx.x] = counter_add(threadIdx.x % 16, 2, &before);
}

__global__ void ask(unsigned *codes, unsigned long long *values) {
    codes[0] = counter_get(3, values);           // 2 x how many threads
    codes[1] = counter_add(3, 11, values + 1);   // more than the limit: RIGHTS
    codes[2] = counter_get(1024, values + 1);    // no such key: RANGE
}

int main() {
    unsigned *codes;
    unsigned long long *values;
    cudaMallocManaged(&codes, 256 * sizeof *codes);
    cudaMallocManaged(&values, 2 * sizeof *values);
    add<<<1, 256>>>(codes);
    cudaError_t error = cudaDeviceSynchronize();
    for (int i = 0; i < 256; i++) {
        if (error != cudaSuccess || codes[i] != 0) {
            printf("FAIL counter: %s, thread %d answers %x\n", cudaGetErrorString(error), i, codes[i]);
            return 1;
        }
    }
    ask<<<1, 1>>>(codes, values);
    error = cudaDeviceSynchronize();
    printf("counter 3 holds %llu; codes %x %x %x; %s\n", values[0], codes[0], codes[1], codes[2], cudaGetErrorString(error));
    return 0;
}
