// Constants of which all have an initializer: the host finds them, and later kernels see what it writes.
#include "program.h"

__constant__ int table[4] = {3, 1, 4, 1};
__constant__ double half = 0.5;
static __constant__ short odd[3] = {1, 3, 5};

__global__ void look(double *to) { to[threadIdx.x] = table[threadIdx.x & 3] * half + odd[threadIdx.x % 3]; }

int main(int argc, char **argv) {
    const Program program("constant_tables", argc, argv);
    int known[4] = {3, 1, 4, 1};
    double factor = 0.5;
    short added[3] = {1, 3, 5};
    double *to, seen[32];
    CHECK(cudaMalloc(&to, sizeof seen));
    for (int round = 0; round < 3; round++) {
        look<<<1, 32>>>(to);
        CHECK_KERNEL();
        CHECK(cudaMemcpy(seen, to, sizeof seen, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 32; i++) {
            const double expected = known[i & 3] * factor + added[i % 3];
            if (seen[i] != expected) Program::fail("round %d: [%d] is %f, not %f", round, i, seen[i], expected);
        }
        known[1] = 100 + round;
        CHECK(cudaMemcpyToSymbol(table, &known[1], sizeof(int), sizeof(int)));
        factor += 1;
        double *address;
        CHECK(cudaGetSymbolAddress(reinterpret_cast<void **>(&address), half));
        CHECK(cudaMemcpy(address, &factor, sizeof factor, cudaMemcpyHostToDevice));
        added[2] = static_cast<short>(round);
        CHECK(cudaMemcpyToSymbol(odd, added, sizeof added));
        int back[4];
        CHECK(cudaMemcpyFromSymbol(back, table, sizeof back));
        if (std::memcmp(back, known, sizeof back) != 0) Program::fail("round %d: read back otherwise", round);
    }
    size_t length = 0;
    CHECK(cudaGetSymbolSize(&length, odd));
    if (length != sizeof odd) Program::fail("%zu bytes", length);
    CHECK(cudaFree(to));
    return Program::pass("3 rounds");
}
