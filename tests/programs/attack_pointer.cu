// Function pointers that are none: a thread that calls one ends before it does anything else, the others go on, and the
// program sees CUDA's sticky error. So each is called in a process of its own.
#include "program.h"

#include <sys/wait.h>
#include <unistd.h>

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

constexpr int NUMBERS = 10;

static int one(int which, bool objects) {
    unsigned *values, *device;
    unsigned long long *number, of_wide;
    CHECK(cudaHostAlloc(&values, 32 * sizeof *values, cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&device, values, 0));
    CHECK(cudaMalloc(&number, sizeof *number));
    number_of_wide<<<1, 1>>>(number);
    CHECK(cudaMemcpy(&of_wide, number, sizeof of_wide, cudaMemcpyDeviceToHost));
    const unsigned long long forged_numbers[NUMBERS] = {
        0, 1, 17, of_wide, of_wide + 1, 1ull << 40, ~0ull, 0x200000000000ull, reinterpret_cast<unsigned long long>(number),
        reinterpret_cast<unsigned long long>(&forged)};
    const unsigned long long chosen = forged_numbers[which];
    for (unsigned i = 0; i < 32; i++) values[i] = i + 2;
    if (objects) forged_object<<<1, 32>>>(device, chosen);
    else forged<<<1, 32>>>(device, chosen);
    const cudaError_t error = cudaDeviceSynchronize();
    // What a forged object leads to may be a function.
    if (error != cudaErrorLaunchFailure && !(objects && error == cudaSuccess)) {
        Program::fail("%llx: %s", chosen, cudaGetErrorName(error));
    }
    const volatile unsigned *const found = values;
    for (unsigned i = 0; i < 32; i += 2) {
        const unsigned expected = objects ? i + 3 : (i + 2) * (i + 2);
        if (found[i] != expected) Program::fail("%llx: [%u] = %u, not %u", chosen, i, found[i], expected);
    }
    for (unsigned i = 1; i < 32 && !objects; i += 2) {
        if (found[i] != i + 2) Program::fail("%llx: [%u] = %u: it went on", chosen, i, found[i]);
    }
    return Program::pass("%llx", chosen);
}

int main(int argc, char **argv) {
    const Program program("attack_pointer", argc, argv);
    if (argc > 2) return one(std::atoi(argv[2]) / 2, std::atoi(argv[2]) % 2 != 0);
    for (int which = 0; which < 2 * NUMBERS; which++) {
        const pid_t child = fork();
        if (child == 0) {
            char number[16];
            std::snprintf(number, sizeof number, "%d", which);
            execl("/proc/self/exe", "attack_pointer", "small", number, static_cast<char *>(nullptr));
            _exit(127);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            Program::fail("pointer %d: status %d", which, status);
        }
    }
    return Program::pass("%d numbers", NUMBERS);
}
