// Function pointers that are none: a thread that calls one ends before it does anything else, the others go on.
#include "program.h"

using Function = unsigned (*)(unsigned);

__device__ __noinline__ unsigned twice(unsigned x) { return 2 * x; }
__device__ __noinline__ unsigned square(unsigned x) { return x * x; }
__device__ __noinline__ unsigned wide(unsigned long long x) { return static_cast<unsigned>(x >> 32); }

__device__ Function table[2] = {twice, square};
__device__ unsigned (*one_wide)(unsigned long long) = wide;

struct Object {
    __device__ virtual unsigned value(unsigned x) const { return x + 1; }
};

__global__ void forged(unsigned *values, unsigned long long number) {
    const Function function = threadIdx.x & 1 ? reinterpret_cast<Function>(number) : table[1];
    values[threadIdx.x] = function(values[threadIdx.x]);
}

// The pointer to the table of functions is the program's to overwrite.
__global__ void forged_object(unsigned *values, unsigned long long number) {
    Object object;
    Object *volatile hidden = &object;
    if (threadIdx.x & 1) *reinterpret_cast<volatile unsigned long long *>(hidden) = number;
    values[threadIdx.x] = hidden->value(values[threadIdx.x]);
}

__global__ void number_of_wide(unsigned long long *to) { *to = reinterpret_cast<unsigned long long>(one_wide); }

int main(int argc, char **argv) {
    const Program program("attack_pointer", argc, argv);
    unsigned values[32], *device;
    unsigned long long *number, of_wide;
    CHECK(cudaMalloc(&device, sizeof values));
    CHECK(cudaMalloc(&number, sizeof *number));
    number_of_wide<<<1, 1>>>(number);
    CHECK(cudaMemcpy(&of_wide, number, sizeof of_wide, cudaMemcpyDeviceToHost));
    const unsigned long long forged_numbers[] = {
        0, 1, 17, of_wide, of_wide + 1, 1ull << 40, ~0ull, 0x200000000000ull, reinterpret_cast<unsigned long long>(device),
        reinterpret_cast<unsigned long long>(&forged)};
    for (const unsigned long long which : forged_numbers) {
        for (int objects = 0; objects < 2; objects++) {
            for (unsigned i = 0; i < 32; i++) values[i] = i + 2;
            CHECK(cudaMemcpy(device, values, sizeof values, cudaMemcpyHostToDevice));
            if (objects) forged_object<<<1, 32>>>(device, which);
            else forged<<<1, 32>>>(device, which);
            CHECK_KERNEL();
            CHECK(cudaMemcpy(values, device, sizeof values, cudaMemcpyDeviceToHost));
            for (unsigned i = 0; i < 32; i += 2) {
                const unsigned expected = objects ? i + 3 : (i + 2) * (i + 2);
                if (values[i] != expected) Program::fail("%llx: [%u] = %u, not %u", which, i, values[i], expected);
            }
            for (unsigned i = 1; i < 32 && !objects; i += 2) {
                if (values[i] != i + 2) Program::fail("%llx: [%u] = %u: it went on", which, i, values[i]);
            }
        }
    }
    CHECK(cudaFree(number));
    CHECK(cudaFree(device));
    return Program::pass("%zu numbers", sizeof forged_numbers / sizeof *forged_numbers);
}
