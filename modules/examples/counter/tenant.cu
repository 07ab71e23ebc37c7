// A tenant of the counter, as it comes from nvcc:
//   nvcc -gencode arch=compute_75,code=compute_75 -o tenant tenant.cu
//   bulkhead run --module counter=limit=10 -- ./tenant
#include <cstdio>

extern "C" __device__ unsigned counter_add(unsigned key, unsigned long long by, unsigned long long *before);
extern "C" __device__ unsigned counter_get(unsigned key, unsigned long long *value);

// Every thread adds 2 to one of 16 counters. What a gate writes for its caller lies in global memory: a gate reaches neither
// local nor shared variables.
__global__ void add(unsigned *codes, unsigned long long *before) {
    codes[threadIdx.x] = counter_add(threadIdx.x % 16, 2, before + threadIdx.x);
}

__global__ void ask(unsigned *codes, unsigned long long *values) {
    codes[0] = counter_get(3, values);           // 2 x how many threads
    codes[1] = counter_add(3, 11, values + 1);   // more than the limit: RIGHTS
    codes[2] = counter_get(1024, values + 1);    // no such key: RANGE
}

// What a gate's code says: those of bulkhead_module.h, as this module uses them.
const char *meaning(unsigned code) {
    switch (code) {
        case 0: return "DONE";
        case 0xFFFFFFF0: return "NOT_OPEN (it is not opened, or the module has ended)";
        case 0xFFFFFFF1: return "REVOKED (what was opened was taken back)";
        case 0xFFFFFFF2: return "RANGE (no such counter)";
        case 0xFFFFFFF3: return "RIGHTS (more than the limit)";
        default: return "no code of this module";
    }
}

#define CHECK(call)                                                      \
    do {                                                                 \
        cudaError_t error = (call);                                      \
        if (error != cudaSuccess) {                                      \
            printf("FAIL %s: %s\n", #call, cudaGetErrorString(error));   \
            return 1;                                                    \
        }                                                                \
    } while (0)

int main() {
    unsigned *codes;
    unsigned long long *values;
    CHECK(cudaMallocManaged(&codes, 256 * sizeof *codes));
    CHECK(cudaMallocManaged(&values, 256 * sizeof *values));
    for (int i = 0; i < 256; i++) codes[i] = ~0u;
    add<<<1, 256>>>(codes, values);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 256; i++) {
        if (codes[i] != 0) {
            printf("FAIL thread %d is answered %x, %s\n", i, codes[i], meaning(codes[i]));
            return 1;
        }
    }
    ask<<<1, 1>>>(codes, values);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    printf("counter 3 holds %llu; then came %s; %s; %s\n", values[0], meaning(codes[0]), meaning(codes[1]), meaning(codes[2]));
    return 0;
}
