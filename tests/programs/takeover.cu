// Work that is lost with its executor while a callback waits behind it: the callback is told, and so is the program, once.
// Told `lost`, it waits until somebody ends the executor that has its kernel; otherwise it ends that kernel itself.
#include "program.h"

#include <atomic>
#include <chrono>
#include <thread>

constexpr int N = 256;

__global__ void wait_for(const volatile unsigned *word) {
    while (*word == 0) {
    }
}

__global__ void add(unsigned *values) { values[threadIdx.x] += 1; }

static std::atomic<int> told{-1};

static void CUDART_CB is_told(cudaStream_t, cudaError_t status, void *) { told = status; }

int main(int argc, char **argv) {
    Program program("takeover", argc, argv);
    const bool lost = argc > 1 && std::strcmp(argv[1], "lost") == 0;
    const cudaError_t expected = lost ? cudaErrorLaunchFailure : cudaSuccess;
    cudaStream_t stream, other;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    unsigned *values, *word;
    CHECK(cudaMalloc(&values, N * sizeof(unsigned)));
    CHECK(cudaHostAlloc(&word, sizeof(unsigned), cudaHostAllocMapped));
    *word = 0;
    CHECK(cudaMemset(values, 0, N * sizeof(unsigned)));
    // The code is there before.
    add<<<1, N>>>(values);
    CHECK_KERNEL();

    wait_for<<<1, 1, 0, stream>>>(word);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamAddCallback(stream, is_told, nullptr, 0));
    if (lost) {
        std::printf("waits\n");
        std::fflush(stdout);
    } else {
        *word = 1;
    }
    while (told < 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (told != expected) Program::fail("the callback is told %d", told.load());
    // It is nobody else's error, and not told twice.
    CHECK(cudaStreamSynchronize(other));
    const cudaError_t first = cudaStreamSynchronize(stream);
    if (first != expected) Program::fail("the program is told %d", static_cast<int>(first));
    cudaGetLastError();
    CHECK(cudaStreamSynchronize(stream));

    add<<<1, N, 0, stream>>>(values);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    unsigned host[N];
    CHECK(cudaMemcpy(host, values, sizeof host, cudaMemcpyDeviceToHost));
    for (unsigned value : host)
        if (value != 2) Program::fail("%u", value);
    CHECK(cudaFreeHost(word));
    CHECK(cudaFree(values));
    return program.pass("told once");
}
