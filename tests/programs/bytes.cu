// nvcc: -arch=sm_90
// Conversions to and from 8 bits as CUDA's headers write them: bf16 and half to char and back, signs and rounding.
#include "program.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

__global__ void convert(const float *from, int *to, int count) {
    int i = threadIdx.x;
    if (i >= count) return;
    __nv_bfloat16 narrow = __float2bfloat16(from[i]);
    __half half = __float2half(from[i]);
    to[4 * i] = static_cast<signed char>(narrow);
    to[4 * i + 1] = static_cast<unsigned char>(__float2bfloat16(fabsf(from[i])));
    to[4 * i + 2] = static_cast<signed char>(half);
    to[4 * i + 3] = static_cast<int>(static_cast<float>(static_cast<__nv_bfloat16>(static_cast<signed char>(narrow))));
}

int main(int argc, char **argv) {
    Program program("bytes", argc, argv);
    const int count = 8;
    const float values[count] = {0, 1.75f, -1.75f, 100, -100, 127, -128, 64.5f};
    float *from;
    int *to;
    CHECK(cudaMalloc(&from, sizeof values));
    CHECK(cudaMalloc(&to, 4 * count * sizeof(int)));
    CHECK(cudaMemcpy(from, values, sizeof values, cudaMemcpyHostToDevice));
    convert<<<1, 32>>>(from, to, count);
    CHECK(cudaGetLastError());
    int got[4 * count];
    CHECK(cudaMemcpy(got, to, sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < count; ++i) {
        int whole = static_cast<int>(values[i]);
        int positive = whole < 0 ? -whole : whole;
        if (got[4 * i] != whole || got[4 * i + 1] != positive || got[4 * i + 2] != whole || got[4 * i + 3] != whole) {
            Program::fail("%f becomes %d %d %d %d", values[i], got[4 * i], got[4 * i + 1], got[4 * i + 2], got[4 * i + 3]);
        }
    }
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    return Program::pass("%d values", count);
}
