// Structures that a kernel is launched with and indexes as it runs: one, larger than local memory may be; two; one whose
// address becomes a generic one; reads of every size, and beyond the end, which find something of the structure.
#include "program.h"

struct Table {
    int count;
    short small[7];
    unsigned char bytes[13];
    double weights[33];
    float4 vectors[5];
};

struct Large {
    int values[3000];
};

__global__ void look(const Table table, double *to) {
    const int i = threadIdx.x;
    const float4 v = table.vectors[i % 5];
    double sum = table.small[i % 7] + table.bytes[i % 13] + table.weights[i % table.count] + v.x + v.w;
    for (int turn = 0; turn < i % 3; turn++) sum += table.weights[(i + turn) % 33];
    to[i] = sum;
}

__global__ void look_large(const Large large, int *to, int from) { to[threadIdx.x] = large.values[from + threadIdx.x * 91]; }

__global__ void look_at_two(const Table first, const Table second, double *to) {
    const int i = threadIdx.x;
    to[i] = first.weights[i % 33] + second.weights[(i + 1) % 33];
}

__device__ __noinline__ double read(const double *from, int i) { return from[i]; }

__global__ void look_through_a_pointer(const Table table, double *to) {
    to[threadIdx.x] = read(table.weights, threadIdx.x % 33);
}

int main(int argc, char **argv) {
    const Program program("indexed_parameters", argc, argv);
    Table table = {}, other = {};
    table.count = 31;
    for (int i = 0; i < 33; i++) table.weights[i] = i * 1.25, other.weights[i] = 7 - i;
    for (int i = 0; i < 13; i++) table.bytes[i] = static_cast<unsigned char>(200 + i);
    for (int i = 0; i < 7; i++) table.small[i] = static_cast<short>(-100 * i);
    for (int i = 0; i < 5; i++) table.vectors[i] = make_float4(i + 0.5f, 9, 9, i * 100.0f);
    constexpr int threads = 96;
    double *to, seen[threads];
    CHECK(cudaMalloc(&to, sizeof seen));
    const auto compare = [&](const char *what, auto expected) {
        CHECK_KERNEL();
        CHECK(cudaMemcpy(seen, to, sizeof seen, cudaMemcpyDeviceToHost));
        for (int i = 0; i < threads; i++) {
            if (seen[i] != expected(i)) Program::fail("%s: [%d] is %f, not %f", what, i, seen[i], expected(i));
        }
    };
    look<<<1, threads>>>(table, to);
    compare("one", [&](int i) {
        double sum = table.small[i % 7] + table.bytes[i % 13] + table.weights[i % 31] + table.vectors[i % 5].x + table.vectors[i % 5].w;
        for (int turn = 0; turn < i % 3; turn++) sum += table.weights[(i + turn) % 33];
        return sum;
    });
    look_at_two<<<1, threads>>>(table, other, to);
    compare("two", [&](int i) { return table.weights[i % 33] + other.weights[(i + 1) % 33]; });
    look_through_a_pointer<<<1, threads>>>(table, to);
    compare("a pointer", [&](int i) { return table.weights[i % 33]; });
#if __CUDACC_VER_MAJOR__ >= 12
    static Large large;
    for (int i = 0; i < 3000; i++) large.values[i] = i * 3;
    int *numbers, found[32];
    CHECK(cudaMalloc(&numbers, sizeof found));
    look_large<<<1, 32>>>(large, numbers, 5);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(found, numbers, sizeof found, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) {
        if (found[i] != (5 + i * 91) * 3) Program::fail("large: [%d] is %d", i, found[i]);
    }
    CHECK(cudaFree(numbers));
#endif
    CHECK(cudaFree(to));
    return Program::pass("4 kernels");
}
