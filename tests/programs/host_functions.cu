// Host functions that wait for the thread that submits: whoever submits behind one does not wait, and nothing behind one
// begins before it has returned.
#include "program.h"

#include <atomic>
#include <cassert>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

constexpr int N = 4096;

// A module with a variable, and with an assertion, which has a place where it would be told.
__device__ unsigned nothing_more = 0;

__global__ void add(unsigned *values, unsigned term, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(n <= N);
    term += nothing_more;
    if (i < n) values[i] += term;
}

// values = values * factor: does not commute with `add`.
__global__ void scale(unsigned *values, unsigned factor, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= factor;
}

static void add(unsigned *values, unsigned term, cudaStream_t stream) {
    add<<<N / 256, 256, 0, stream>>>(values, term, N);
    CHECK(cudaGetLastError());
}

static void scale(unsigned *values, unsigned factor, cudaStream_t stream) {
    scale<<<N / 256, 256, 0, stream>>>(values, factor, N);
    CHECK(cudaGetLastError());
}

static std::mutex lock;
static std::atomic<int> flag;
static std::atomic<int> called;

static void CUDART_CB takes_the_lock(void *) {
    std::lock_guard<std::mutex> guard(lock);
    called++;
}

static void CUDART_CB waits_for_the_flag(void *) {
    while (!flag) std::this_thread::sleep_for(std::chrono::microseconds(100));
    called++;
}

static void CUDART_CB counts(void *) { called++; }

// Streams that do not block do not wait for the fill by themselves.
static void clear(unsigned *values) {
    CHECK(cudaMemset(values, 0, N * sizeof(unsigned)));
    CHECK(cudaDeviceSynchronize());
    called = 0;
    flag = 0;
}

static bool all_are(const unsigned *device, unsigned expected) {
    std::vector<unsigned> host(N);
    CHECK(cudaMemcpy(host.data(), device, N * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (unsigned value : host)
        if (value != expected) {
            std::printf("%u for %u\n", value, expected);
            return false;
        }
    return true;
}

// The first launch, which loads the module, while a function of another stream waits. Natively it was seen to wait for that.
static bool first_launch(cudaStream_t one, unsigned *values) {
    CHECK(cudaLaunchHostFunc(nullptr, waits_for_the_flag, nullptr));
    CHECK(cudaMemsetAsync(values, 0, N * sizeof(unsigned), one));
    add(values, 4, one);
    CHECK(cudaStreamSynchronize(one));
    flag = 1;
    return all_are(values, 4);
}

// A program that holds a lock over its submissions, as one that shares a stream between threads does.
static bool lock_over_submissions(cudaStream_t one, cudaStream_t two, unsigned *values, unsigned *pinned) {
    clear(values);
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    for (int i = 0; i < N; i++) pinned[i] = 1;
    {
        std::lock_guard<std::mutex> guard(lock);
        CHECK(cudaLaunchHostFunc(one, takes_the_lock, nullptr));
        CHECK(cudaMemcpyAsync(values, pinned, N * sizeof(unsigned), cudaMemcpyHostToDevice, one));
        add(values, 2, one);
        CHECK(cudaEventRecord(event, one));
        CHECK(cudaStreamWaitEvent(two, event));
        scale(values, 5, two);
        CHECK(cudaLaunchHostFunc(two, takes_the_lock, nullptr));
        add(values, 7, two);
        CHECK(cudaMemcpyAsync(pinned, values, N * sizeof(unsigned), cudaMemcpyDeviceToHost, two));
        // The copy to the device has not begun.
        for (int i = 0; i < N; i++) pinned[i] = 3;
        if (cudaStreamQuery(one) != cudaErrorNotReady || cudaEventQuery(event) != cudaErrorNotReady || called != 0)
            return false;
    }
    CHECK(cudaStreamSynchronize(two));
    const bool right = called == 2 && pinned[0] == (3 + 2) * 5 + 7 && pinned[N - 1] == pinned[0];
    CHECK(cudaEventDestroy(event));
    return right && all_are(values, 32);
}

// Blocking streams and the legacy one wait for each other's host functions, and the thread that submits for none.
static bool flag_set_afterwards(unsigned *values) {
    cudaStream_t streams[3];
    for (cudaStream_t &stream : streams) CHECK(cudaStreamCreate(&stream));
    clear(values);
    add(values, 1, streams[0]);
    CHECK(cudaLaunchHostFunc(streams[0], waits_for_the_flag, nullptr));
    scale(values, 3, nullptr);
    for (int round = 0; round < 50; round++) {
        add(values, 1, streams[1 + round % 2]);
        scale(values, 2, nullptr);
    }
    CHECK(cudaLaunchHostFunc(nullptr, counts, nullptr));
    const bool nothing = called == 0;
    flag = 1;
    CHECK(cudaDeviceSynchronize());
    unsigned expected = 3;
    for (int round = 0; round < 50; round++) expected = (expected + 1) * 2;
    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    return nothing && called == 2 && all_are(values, expected);
}

// A graph with host functions, launched twice behind one that waits.
static bool graph(cudaStream_t stream, unsigned *values) {
    clear(values);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    add(values, 1, stream);
    CHECK(cudaLaunchHostFunc(stream, waits_for_the_flag, nullptr));
    scale(values, 4, stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    add(values, 9, stream);
    const bool nothing = called == 0 && cudaStreamQuery(stream) == cudaErrorNotReady;
    flag = 1;
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    return nothing && called == 2 && all_are(values, ((0 + 1) * 4 + 1) * 4 + 9);
}

// A graph of two branches behind a function.
static cudaGraphExec_t forked(cudaStream_t stream, cudaStream_t side, unsigned *values, cudaHostFn_t function) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t fork, join;
    for (cudaEvent_t *event : {&fork, &join}) CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaLaunchHostFunc(stream, function, nullptr));
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork));
    add<<<1, 256, 0, side>>>(values, 1, 256);
    add<<<1, 256, 0, stream>>>(values + 256, 1, 256);
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(stream, join));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (cudaEvent_t event : {fork, join}) CHECK(cudaEventDestroy(event));
    return exec;
}

static void CUDART_CB sets_the_flag(void *) {
    flag = 1;
    called++;
}

// A graph whose function waits for what other graphs do, in another stream.
static bool graphs_of_two_streams(cudaStream_t one, cudaStream_t two, unsigned *values) {
    clear(values);
    std::vector<cudaGraphExec_t> others;
    cudaGraphExec_t waits = forked(one, two, values, waits_for_the_flag);
    for (int other = 0; other < 9; other++)
        others.push_back(forked(two, one, values + 512, other < 8 ? counts : sets_the_flag));
    CHECK(cudaGraphLaunch(waits, one));
    for (cudaGraphExec_t other : others) CHECK(cudaGraphLaunch(other, two));
    for (int tries = 0; !flag && tries < 20000; tries++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool came = flag;
    flag = 1;
    CHECK(cudaStreamSynchronize(one));
    CHECK(cudaStreamSynchronize(two));
    CHECK(cudaGraphExecDestroy(waits));
    for (cudaGraphExec_t other : others) CHECK(cudaGraphExecDestroy(other));
    std::vector<unsigned> host(1024);
    CHECK(cudaMemcpy(host.data(), values, 4096, cudaMemcpyDeviceToHost));
    return came && called == 10 && host[0] == 1 && host[256] == 1 && host[512] == 9 && host[768] == 9;
}

// A stream that is destroyed behind a host function still does its work.
static bool destroyed(unsigned *values) {
    clear(values);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaLaunchHostFunc(stream, waits_for_the_flag, nullptr));
    add(values, 6, stream);
    CHECK(cudaLaunchHostFunc(stream, counts, nullptr));
    CHECK(cudaStreamDestroy(stream));
    const bool nothing = called == 0;
    flag = 1;
    CHECK(cudaDeviceSynchronize());
    while (called < 2) std::this_thread::yield();
    CHECK(cudaDeviceSynchronize());
    return nothing && all_are(values, 6);
}

// More work than waits in the queue at once; other threads submit meanwhile.
static bool many(unsigned *values) {
    clear(values);
    std::vector<std::thread> threads;
    std::vector<cudaStream_t> streams(4);
    for (cudaStream_t &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int thread = 0; thread < 4; thread++)
        threads.emplace_back([=] {
            for (int round = 0; round < 400; round++) {
                add<<<1, 256, 0, streams[thread]>>>(values + thread * 256, 1, 256);
                CHECK(cudaLaunchHostFunc(streams[thread], counts, nullptr));
                scale<<<1, 256, 0, streams[thread]>>>(values + thread * 256, 3, 256);
            }
        });
    for (std::thread &thread : threads) thread.join();
    CHECK(cudaDeviceSynchronize());
    unsigned expected = 0;
    for (int round = 0; round < 400; round++) expected = (expected + 1) * 3;
    std::vector<unsigned> host(1024);
    CHECK(cudaMemcpy(host.data(), values, 4096, cudaMemcpyDeviceToHost));
    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    for (unsigned value : host)
        if (value != expected) {
            std::printf("%u for %u\n", value, expected);
            return false;
        }
    return called == 1600;
}

int main(int argc, char **argv) {
    Program program("host_functions", argc, argv);
    cudaStream_t one, two;
    CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    unsigned *values, *pinned;
    CHECK(cudaMalloc(&values, N * sizeof(unsigned)));
    CHECK(cudaMallocHost(&pinned, N * sizeof(unsigned)));
    if (program.large) {
        add(values, 1, one);
        scale(values, 1, one);
        CHECK(cudaStreamSynchronize(one));
    } else if (!first_launch(one, values)) {
        program.fail("the first launch");
    }
    if (!lock_over_submissions(one, two, values, pinned)) program.fail("a lock over submissions");
    if (!flag_set_afterwards(values)) program.fail("a flag that is set afterwards");
    if (!graph(one, values)) program.fail("a graph");
    if (!graphs_of_two_streams(one, two, values)) program.fail("graphs of two streams");
    if (!destroyed(values)) program.fail("a stream that is destroyed");
    if (!many(values)) program.fail("many");
    CHECK(cudaStreamDestroy(one));
    CHECK(cudaStreamDestroy(two));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(values));
    return program.pass("nobody waits to submit");
}
