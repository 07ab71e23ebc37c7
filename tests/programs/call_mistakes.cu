// Calls that fail and that nobody looks at, which `bulkhead run --sanitize` tells. `call_mistakes small NAME` makes the mistake
// of that name; without a name none is made.
// nvcc: -lineinfo -gencode arch=compute_90,code=[sm_90,compute_90]
#include "program.h"

__global__ void set(int *to) { to[threadIdx.x] = threadIdx.x; }

int main(int argc, char **argv) {
    const Program program("call_mistakes", argc, argv);
    const char *mistake = argc > 2 ? argv[2] : "";
    const auto wrong = [&](const char *name) { return std::strcmp(mistake, name) == 0; };
    int *to, from[64] = {};
    CHECK(cudaMalloc(&to, sizeof(from)));
    set<<<1, 64>>>(to);
    if (wrong("launch")) set<<<1, 4096>>>(to);
    if (wrong("copy")) cudaMemcpy(to, from, 2 * sizeof(from), cudaMemcpyHostToDevice);
    if (wrong("fill")) {
        // Twice the same.
        cudaMemset(to + 1, 0, sizeof(from));
        cudaMemset(to + 1, 0, sizeof(from));
    }
    cudaDeviceSynchronize();
    CHECK(cudaFree(to));
    if (wrong("free")) cudaFree(to);
    return Program::pass("%s", *mistake ? mistake : "no mistakes");
}
