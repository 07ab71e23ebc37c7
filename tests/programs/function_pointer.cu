// Functions chosen by data: in registers, in tables at module scope, in structures, and given by the host.
#include "program.h"

using Function = unsigned (*)(unsigned);

__device__ __noinline__ unsigned twice(unsigned x) { return 2 * x; }
__device__ __noinline__ unsigned square(unsigned x) { return x * x; }
__device__ __noinline__ unsigned next(unsigned x) { return x + 1; }
// Another shape: no call below can mean it.
__device__ __noinline__ unsigned wide(unsigned long long x) { return static_cast<unsigned>(x >> 32); }

__device__ Function table[3] = {twice, square, next};
__constant__ Function fixed[2] = {next, twice};
__device__ unsigned (*one_wide)(unsigned long long) = wide;

// Only the host reads these.
__device__ Function only_hosts = square;
namespace in_a_namespace {
__device__ int numbers[2] = {7, 8};
}

struct __attribute__((packed)) Step {
    char name;
    Function function;
    short times;
};
__device__ Step steps[2] = {{'t', twice, 3}, {'n', next, 2}};

__global__ void apply(unsigned *values) {
    const Function function = values[threadIdx.x] % 3 == 0 ? twice : square;
    values[threadIdx.x] = function(values[threadIdx.x]);
}

// Lanes of one warp go different ways.
__global__ void by_table(unsigned *values) {
    unsigned value = values[threadIdx.x];
    value = table[threadIdx.x % 3](value);
    __syncthreads();
    value = fixed[threadIdx.x & 1](value);
    const Step &step = steps[threadIdx.x & 1];
    for (int i = 0; i < step.times; i++) value = step.function(value);
    values[threadIdx.x] = value + one_wide(static_cast<unsigned long long>(threadIdx.x) << 32);
}

__global__ void given(unsigned *values, Function function) { values[threadIdx.x] = function(values[threadIdx.x]); }

int main(int argc, char **argv) {
    const Program program("function_pointer", argc, argv);
    unsigned values[32], *device;
    CHECK(cudaMalloc(&device, sizeof values));
    const auto send = [&] {
        for (unsigned i = 0; i < 32; i++) values[i] = i;
        CHECK(cudaMemcpy(device, values, sizeof values, cudaMemcpyHostToDevice));
    };
    const auto expect = [&](const char *what, auto expected) {
        CHECK_KERNEL();
        CHECK(cudaMemcpy(values, device, sizeof values, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < 32; i++) {
            if (values[i] != expected(i)) Program::fail("%s: [%u] = %u, not %u", what, i, values[i], expected(i));
        }
    };
    send();
    apply<<<1, 32>>>(device);
    expect("apply", [](unsigned i) { return i % 3 == 0 ? 2 * i : i * i; });
    send();
    by_table<<<1, 32>>>(device);
    expect("by_table", [](unsigned i) {
        unsigned value = i % 3 == 0 ? 2 * i : i % 3 == 1 ? i * i : i + 1;
        value = i & 1 ? 2 * value : value + 1;
        return (i & 1 ? value + 2 : value * 8) + i;
    });
    // The host reads a pointer by its name, and gives it to another kernel.
    Function chosen = nullptr;
    CHECK(cudaMemcpyFromSymbol(&chosen, table, sizeof chosen, sizeof chosen));
    if (chosen == nullptr) Program::fail("the pointer is null");
    send();
    given<<<1, 32>>>(device, chosen);
    expect("given", [](unsigned i) { return i * i; });
    chosen = nullptr;
    CHECK(cudaMemcpyFromSymbol(&chosen, only_hosts, sizeof chosen));
    send();
    given<<<1, 32>>>(device, chosen);
    expect("what only the host reads", [](unsigned i) { return i * i; });
    int numbers[2] = {};
    CHECK(cudaMemcpyFromSymbol(numbers, in_a_namespace::numbers, sizeof numbers));
    if (numbers[0] != 7 || numbers[1] != 8) Program::fail("numbers %d, %d, not 7, 8", numbers[0], numbers[1]);
    Function swapped[2] = {chosen, chosen};
    CHECK(cudaMemcpyToSymbol(table, swapped, sizeof swapped));
    send();
    by_table<<<1, 32>>>(device);
    expect("swapped", [](unsigned i) {
        unsigned value = i % 3 < 2 ? i * i : i + 1;
        value = i & 1 ? 2 * value : value + 1;
        return (i & 1 ? value + 2 : value * 8) + i;
    });
    CHECK(cudaFree(device));
    return Program::pass("values[31] = %u", values[31]);
}
