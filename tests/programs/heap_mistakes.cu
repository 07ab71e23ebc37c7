// Kernels that misuse what their own `malloc` gave them, which `bulkhead run --check` and `--sanitize` tell.
// `heap_mistakes small NAME` makes the mistake of that name; without a name none is made.
// nvcc: -lineinfo -gencode arch=compute_90,code=[sm_90,compute_90]
#include "program.h"

__device__ int *kept;

__global__ void use(int *to, int words, int index) {
    int *const block = static_cast<int *>(malloc(words * sizeof(int)));
    if (!block) return;
    for (int k = 0; k < words; k++) block[k] = k;
    block[index] = 7; // written
    to[threadIdx.x] = block[index];
    free(block);
}

__global__ void late(int *to, int wrong) {
    int *const block = new int[8];
    block[0] = 5;
    if (wrong) delete[] block;
    to[threadIdx.x] = *static_cast<volatile int *>(block); // late
    if (!wrong) delete[] block;
}

__global__ void twice(int wrong, int inside) {
    int *const block = static_cast<int *>(malloc(100));
    free(block + inside); // freed inside
    if (inside) free(block);
    if (wrong) free(block); // freed twice
}

__global__ void keep() { kept = new int[4]; }

__global__ void give() { delete[] kept; }

__global__ void look(int *to) { *to = *kept; } // looked

int main(int argc, char **argv) {
    const Program program("heap_mistakes", argc, argv);
    const char *mistake = argc > 2 ? argv[2] : "";
    const auto wrong = [&](const char *name) { return std::strcmp(mistake, name) == 0; };
    int *to;
    CHECK(cudaMalloc(&to, 64 * sizeof(int)));
    use<<<2, 32>>>(to, 10, wrong("overflow") ? 10 : 9);
    use<<<1, 1>>>(to, 2000, wrong("large") ? 2000 : 1999);
    CHECK_KERNEL();
    late<<<1, 1>>>(to, wrong("late"));
    twice<<<1, 1>>>(wrong("twice"), wrong("inside"));
    CHECK_KERNEL();
    keep<<<1, 1>>>();
    if (wrong("other_kernel")) give<<<1, 1>>>();
    look<<<1, 1>>>(to);
    if (!wrong("other_kernel")) give<<<1, 1>>>();
    CHECK_KERNEL();
    CHECK(cudaFree(to));
    return Program::pass("%s", *mistake ? mistake : "no mistakes");
}
