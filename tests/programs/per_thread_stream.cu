// Two host threads, each with a default stream of its own.
// nvcc: --default-stream per-thread
#include "program.h"

#include <thread>
#include <vector>

__global__ void advance(unsigned *values, unsigned salt, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = hash(values[i] ^ salt);
}

struct Worker {
    unsigned salt;
    int n, rounds;
    std::vector<unsigned> values;
    cudaError_t error;
    const char *where;

    void run() {
        error = cudaSuccess;
        where = "";
        unsigned *device = nullptr;
        const size_t bytes = n * sizeof(unsigned);
        if (!ok(cudaMalloc(&device, bytes), "cudaMalloc")) return;
        if (!ok(cudaMemcpyAsync(device, values.data(), bytes, cudaMemcpyHostToDevice), "copy in")) return;
        for (int round = 0; round < rounds; round++) {
            advance<<<(n + 255) / 256, 256>>>(device, salt + round, n);
            if (!ok(cudaGetLastError(), "launch")) return;
        }
        if (!ok(cudaStreamSynchronize(cudaStreamPerThread), "synchronize")) return;
        if (!ok(cudaStreamQuery(0), "query")) return;
        if (!ok(cudaMemcpy(values.data(), device, bytes, cudaMemcpyDeviceToHost), "copy out")) return;
        ok(cudaFree(device), "cudaFree");
    }

    bool ok(cudaError_t result, const char *call) {
        error = result;
        where = call;
        return result == cudaSuccess;
    }
};

int main(int argc, char **argv) {
    const Program program("per_thread_stream", argc, argv);
    const int n = program.large ? 1 << 20 : 5003, rounds = program.large ? 300 : 30;
    Worker workers[2];
    for (int w = 0; w < 2; w++) {
        workers[w].salt = w == 0 ? 0x1234u : 0xabcd0000u;
        workers[w].n = n;
        workers[w].rounds = rounds;
        for (int i = 0; i < n; i++) workers[w].values.push_back(i * 7u + w);
    }
    std::thread first([&] { workers[0].run(); }), second([&] { workers[1].run(); });
    first.join();
    second.join();
    CHECK(cudaDeviceSynchronize());

    for (int w = 0; w < 2; w++) {
        if (workers[w].error != cudaSuccess) {
            Program::fail("thread %d: %s: %s", w, workers[w].where, cudaGetErrorString(workers[w].error));
        }
        for (int i = 0; i < n; i++) {
            unsigned expected = i * 7u + w;
            for (int round = 0; round < rounds; round++) expected = hash(expected ^ (workers[w].salt + round));
            if (workers[w].values[i] != expected) {
                Program::fail("thread %d: values[%d] = %u, not %u", w, i, workers[w].values[i], expected);
            }
        }
    }
    return Program::pass("2 threads, %d words, %d launches each", n, rounds);
}
