// Prints from kernels, between prints of the host, and then lets an assertion fail.
#include <cassert>
#include <cstdio>

__global__ void prints(int n) {
    if (threadIdx.x == 0) printf("kernel %d, block %d of %s\n", n, blockIdx.x, "two");
}

__global__ void fails(int n) {
    assert(n > 3);
}

int main(int argc, char **argv) {
    for (int n = 0; n < 3; n++) {
        printf("host before %d\n", n);
        prints<<<1, 32>>>(n);
        printf("host: %d\n", static_cast<int>(cudaDeviceSynchronize()));
    }
    // More than one fetch takes.
    for (int n = 0; n < 6; n++) prints<<<4000, 32>>>(n);
    printf("host: %d\n", static_cast<int>(cudaDeviceSynchronize()));
    if (argc > 1) {
        fails<<<1, 2>>>(1);
        printf("host: %d\n", static_cast<int>(cudaDeviceSynchronize()));
    }
    // At the end, nobody waits for it: it has passed all the same.
    prints<<<1, 32>>>(9);
    cudaStreamSynchronize(0);
    return 0;
}
