// Work that is lost with its executor while a callback waits behind it: the callback is told, and so is the program, once.
// Told `lost`, it waits until somebody ends the executor that has its kernel; otherwise it ends that kernel itself.
// Told `graphs`, it waits for a line on its input, before which somebody has ended the executor.
#include "program.h"

#include <atomic>
#include <chrono>
#include <thread>

constexpr int N = 256;

// Says that it runs, and waits.
__global__ void wait_for(volatile unsigned *word) {
    word[1] = 1;
    while (word[0] == 0) {
    }
}

__global__ void add(unsigned *values) { values[threadIdx.x] += 1; }

static std::atomic<int> told{-1};

static void CUDART_CB is_told(cudaStream_t, cudaError_t status, void *) { told = status; }

// Whoever waits is told of the loss, and not a launch of a graph, which looks for streams that others have left.
static int graphs() {
    cudaStream_t streams[3];
    for (cudaStream_t &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    unsigned *values;
    CHECK(cudaMalloc(&values, 2 * N * sizeof(unsigned)));
    CHECK(cudaMemset(values, 0, 2 * N * sizeof(unsigned)));
    cudaEvent_t fork, join;
    for (cudaEvent_t *event : {&fork, &join}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(fork, streams[0]));
    CHECK(cudaStreamWaitEvent(streams[1], fork));
    add<<<1, N, 0, streams[0]>>>(values);
    add<<<1, N, 0, streams[1]>>>(values + N);
    CHECK(cudaEventRecord(join, streams[1]));
    CHECK(cudaStreamWaitEvent(streams[0], join));
    CHECK(cudaStreamEndCapture(streams[0], &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, streams[0]));
    CHECK(cudaStreamSynchronize(streams[0]));
    std::printf("waits\n");
    std::fflush(stdout);
    std::getchar();
    CHECK(cudaGraphLaunch(exec, streams[2]));
    const cudaError_t told = cudaStreamSynchronize(streams[2]);
    if (told != cudaErrorLaunchFailure) Program::fail("whoever waits is told %d", static_cast<int>(told));
    cudaGetLastError();
    CHECK(cudaDeviceSynchronize());
    return Program::pass("told once");
}

int main(int argc, char **argv) {
    Program program("takeover", argc, argv);
    if (argc > 1 && std::strcmp(argv[1], "graphs") == 0) return graphs();
    const bool lost = argc > 1 && std::strcmp(argv[1], "lost") == 0;
    const cudaError_t expected = lost ? cudaErrorLaunchFailure : cudaSuccess;
    cudaStream_t stream, other;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    unsigned *values;
    volatile unsigned *word;
    CHECK(cudaMalloc(&values, N * sizeof(unsigned)));
    CHECK(cudaHostAlloc((void **)&word, 2 * sizeof(unsigned), cudaHostAllocMapped));
    word[0] = word[1] = 0;
    CHECK(cudaMemset(values, 0, N * sizeof(unsigned)));
    // The code is there before.
    add<<<1, N>>>(values);
    CHECK_KERNEL();

    wait_for<<<1, 1, 0, stream>>>(word);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamAddCallback(stream, is_told, nullptr, 0));
    if (lost) {
        // What has not begun is not lost with its executor: the next one runs it.
        while (word[1] == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::printf("waits\n");
        std::fflush(stdout);
    } else {
        word[0] = 1;
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
    CHECK(cudaFreeHost((void *)word));
    CHECK(cudaFree(values));
    return program.pass("told once");
}
