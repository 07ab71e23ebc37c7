// The largest grids that there are, in several streams, left behind by a program that ends.
#include "program.h"

__global__ void empty() {}

__global__ void store(unsigned *at) { at[blockIdx.x & 255] = blockIdx.y; }

__global__ void endless(volatile unsigned *at) {
    while (at[threadIdx.x] == 0) {}
}

int main(int argc, char **argv) {
    const Program program("attack_grid", argc, argv);
    const char *const kind = argc > 1 ? argv[1] : "empty";
    const dim3 largest(0x7fffffff, 65535, 65535);
    unsigned *at;
    CHECK(cudaMalloc(&at, 1024));
    CHECK(cudaMemset(at, 0, 1024));
    CHECK(cudaDeviceSynchronize());
    for (int turn = 0; turn < 4; turn++) {
        cudaStream_t stream;
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (int launch = 0; launch < 50; launch++) {
            if (std::strcmp(kind, "empty") == 0) {
                empty<<<largest, 32, 0, stream>>>();
            } else if (std::strcmp(kind, "store") == 0) {
                store<<<largest, 32, 0, stream>>>(at);
            } else {
                endless<<<largest, 256, 0, stream>>>(at);
            }
            CHECK(cudaGetLastError());
        }
        if (cudaStreamQuery(stream) != cudaErrorNotReady) Program::fail("more blocks than there is time for are done");
    }
    // Nobody waits for them.
    Program::pass("%s grids of 2^63 blocks", kind);
    std::_Exit(0);
}
