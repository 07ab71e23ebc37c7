// Constants: those that the host writes, and a table beside them.
#include "program.h"

__constant__ float coefficients[5];
__constant__ int table[4] = {3, 1, 4, 1};
__constant__ float scale = 2;

__global__ void filter(const float *from, float *to, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 2 || i >= n - 2) return;
    float sum = 0;
    for (int k = -2; k <= 2; k++) sum += coefficients[k + 2] * from[i + k];
    to[i] = sum * scale + table[i & 3];
}

// By a generic address, which is of one or the other.
__global__ void either(const float *other, float *to, int constant) {
    const float *from = constant ? coefficients : other;
    to[threadIdx.x] = from[threadIdx.x];
}

int main(int argc, char **argv) {
    const Program program("constants", argc, argv);
    const int n = program.large ? 1 << 22 : 4096;
    const size_t bytes = n * sizeof(float);
    float *host = static_cast<float *>(std::malloc(bytes)), *result = static_cast<float *>(std::malloc(bytes));
    for (int i = 0; i < n; i++) host[i] = static_cast<float>(hash(i) % 64);
    float *from, *to;
    CHECK(cudaMalloc(&from, bytes));
    CHECK(cudaMalloc(&to, bytes));
    CHECK(cudaMemcpy(from, host, bytes, cudaMemcpyHostToDevice));
    const int known[4] = {3, 1, 4, 1};
    for (int round = 1; round <= 3; round++) {
        float own[5], back[5], factor = static_cast<float>(round + 1);
        for (int k = 0; k < 5; k++) own[k] = static_cast<float>(k * round - 3);
        CHECK(cudaMemcpyToSymbol(coefficients, own, sizeof own));
        CHECK(cudaMemcpyToSymbol(scale, &factor, sizeof factor));
        filter<<<(n + 255) / 256, 256>>>(from, to, n);
        CHECK_KERNEL();
        CHECK(cudaMemcpy(result, to, bytes, cudaMemcpyDeviceToHost));
        for (int i = 2; i < n - 2; i++) {
            float sum = 0;
            for (int k = -2; k <= 2; k++) sum += own[k + 2] * host[i + k];
            const float expected = sum * factor + known[i & 3];
            if (result[i] != expected) Program::fail("round %d: [%d] is %f, not %f", round, i, result[i], expected);
        }
        CHECK(cudaMemcpyFromSymbol(back, coefficients, sizeof back));
        if (std::memcmp(own, back, sizeof own) != 0) Program::fail("round %d: read back otherwise", round);
        either<<<1, 5>>>(from, to, round & 1);
        CHECK_KERNEL();
        CHECK(cudaMemcpy(back, to, sizeof back, cudaMemcpyDeviceToHost));
        if (std::memcmp(back, round & 1 ? own : host, sizeof back) != 0) Program::fail("round %d: another", round);
    }
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    return Program::pass("3 rounds");
}
