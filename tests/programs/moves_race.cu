// A thread makes things while another has the process move to an isolated session: each finds its own, whichever way it ends.
#include "driver.h"
#include "program.h"

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

extern "C" __global__ void write(unsigned *words, unsigned value) { words[threadIdx.x] = value; }

static void makes(unsigned value) {
    cudaStream_t stream;
    cudaEvent_t event;
    unsigned *words, got[32];
    CHECK(cudaMalloc(&words, sizeof got));
    CHECK(cudaMemset(words, 0, sizeof got));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&event));
    for (int round = 0; round < 20; round++) {
        write<<<1, 32, 0, stream>>>(words, value + round);
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaEventSynchronize(event));
        CHECK(cudaMemcpy(got, words, sizeof got, cudaMemcpyDeviceToHost));
        for (unsigned word : got)
            if (word != value + round) Program::fail("%u in place of %u", word, value + round);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(words));
}

int main(int argc, char **argv) {
    Program program("moves_race", argc, argv);
    int after = argc > 1 ? std::atoi(argv[1]) : 2;
    CHECK(cudaFree(nullptr));
    DRIVER(cuModuleLoadData);
    std::atomic<bool> begins = false;
    std::thread other([&] {
        while (!begins) {}
        std::this_thread::sleep_for(std::chrono::milliseconds(after));
        makes(1000);
    });
    unsigned char head[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    head[18] = 190;
    begins = true;
    CUmodule module;
    if (cuModuleLoadData_(&module, head) == CUDA_SUCCESS) Program::fail("the beginning of a file is loaded");
    makes(2000);
    other.join();
    return Program::pass("%d ms", after);
}
