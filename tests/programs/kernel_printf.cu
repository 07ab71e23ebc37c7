// printf in a kernel: conversions of every kind, strings, many threads, and more than is kept.
#include "program.h"

__device__ char greeting[16] = "from the device";

__global__ void greet(int base) {
    printf("thread %u of %u\n", threadIdx.x + base, blockDim.x);
}

__global__ void kinds() {
    const short half = -3;
    printf("%d|%5d|%-5d|%05d|%+d|%i\n", 42, 42, 42, 42, 42, -42);
    printf("%u %x %X %#x %o %c%c\n", 4000000000u, 0xabcdef, 0xabcdef, 255, 8, 'o', 'k');
    printf("%lld %llu %ld %hd %zu\n", -1234567890123LL, 12345678901234567890ULL, -5L, half, sizeof(int));
    printf("%f %.2f %8.3f %e %g %G\n", 1.5, 2.345, 3.14159, 12345.678, 0.0001, 1e20);
    printf("%s and %10s, 100%% %.3s\n", "a literal", greeting + 9, greeting);
    printf("%*d|%-*d|%.*f\n", 6, 7, 6, 7, 2, 1.0);
    printf("no conversion\n");
}

__global__ void flood() { printf("flood %d\n", static_cast<int>(threadIdx.x)); }

int main(int argc, char **argv) {
    const Program program("kernel_printf", argc, argv);
    std::printf("before\n");
    greet<<<1, 4>>>(0);
    CHECK_KERNEL();
    std::printf("between\n");
    kinds<<<1, 1>>>();
    CHECK_KERNEL();
    // What does not fit is lost, and what comes later is not.
    for (int round = 0; round < 60; round++) flood<<<8, 128>>>();
    CHECK_KERNEL();
    greet<<<1, 1>>>(100);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK_KERNEL();
    return Program::pass("all of it above");
}
