// Rates of launches, of a graph's kernels and of hops between streams, to be compared natively and in an isolated session.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <algorithm>

#define MUST(call) \
    do { \
        cudaError_t error = (call); \
        if (error != cudaSuccess) { \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
            exit(1); \
        } \
    } while (0)

__global__ void add(float *to, float value, int count) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) to[at] += value;
}

static double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename Work> static double median_us(int rounds, Work work) {
    std::vector<double> times;
    for (int round = 0; round < rounds; round++) {
        MUST(cudaDeviceSynchronize());
        const double begun = now_us();
        work();
        MUST(cudaDeviceSynchronize());
        times.push_back(now_us() - begun);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

int main() {
    const double begun = now_us();
    constexpr int COUNT = 1 << 16;
    float *memory;
    MUST(cudaMalloc(&memory, COUNT * sizeof(float)));
    MUST(cudaMemset(memory, 0, COUNT * sizeof(float)));
    add<<<COUNT / 256, 256>>>(memory, 0, COUNT);
    MUST(cudaDeviceSynchronize());
    printf("first kernel: %.1f ms\n", (now_us() - begun) / 1e3);
    cudaStream_t one, two;
    MUST(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    double launched = 0;
    constexpr int LAUNCHES = 50000;
    const auto in_a_row = [&](int count) {
        for (int launch = 0; launch < LAUNCHES; launch++) add<<<count / 256, 256, 0, one>>>(memory, 1, count);
        launched += count == COUNT;
    };
    printf("launch of one block, 50,000 in a row: %.3f us\n", median_us(5, [&] { in_a_row(256); }) / LAUNCHES);
    printf("launch of 256 blocks, 50,000 in a row: %.3f us\n", median_us(5, [&] { in_a_row(COUNT); }) / LAUNCHES);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    MUST(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    for (int launch = 0; launch < 500; launch++) add<<<COUNT / 256, 256, 0, one>>>(memory, 1, COUNT);
    MUST(cudaStreamEndCapture(one, &graph));
    MUST(cudaGraphInstantiate(&executable, graph, 0));
    const auto replays = [&] {
        for (int replay = 0; replay < 50; replay++) MUST(cudaGraphLaunch(executable, one));
        launched += 50 * 500.0 / LAUNCHES;
    };
    printf("kernel of a graph of 500, replayed 50 times: %.3f us\n", median_us(5, replays) / (50 * 500));
    const auto each = [&] {
        for (int replay = 0; replay < 50; replay++) {
            MUST(cudaGraphLaunch(executable, one));
            MUST(cudaStreamSynchronize(one));
        }
        launched += 50 * 500.0 / LAUNCHES;
    };
    printf("the same, waited for each time: %.3f us\n", median_us(5, each) / (50 * 500));
    cudaEvent_t event;
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    const auto hops = [&] {
        for (int hop = 0; hop < 1000; hop++) {
            add<<<1, 256, 0, one>>>(memory, 0, 256);
            MUST(cudaEventRecord(event, one));
            MUST(cudaStreamWaitEvent(two, event, 0));
            add<<<1, 256, 0, two>>>(memory, 0, 256);
            MUST(cudaEventRecord(event, two));
            MUST(cudaStreamWaitEvent(one, event, 0));
        }
    };
    printf("hop between two streams, with a kernel: %.3f us\n", median_us(5, hops) / 2000);
    const auto turns = [&] {
        for (int turn = 0; turn < 2000; turn++) {
            add<<<1, 256, 0, one>>>(memory, 0, 256);
            MUST(cudaStreamSynchronize(one));
        }
    };
    printf("launch and wait: %.3f us\n", median_us(5, turns) / 2000);
    float *pinned, pageable;
    MUST(cudaMallocHost(&pinned, sizeof(float)));
    const auto wait_us = [](double us) {
        for (const double from = now_us(); now_us() - from < us;) {}
    };
    const auto fetches = [&](bool launches, bool is_pinned, double after_us) {
        return median_us(5, [&] {
            for (int turn = 0; turn < 2000; turn++) {
                if (launches) add<<<1, 256, 0, one>>>(memory, 0, 256);
                if (after_us > 0) wait_us(after_us);
                MUST(cudaMemcpyAsync(is_pinned ? pinned : &pageable, memory, sizeof(float), cudaMemcpyDeviceToHost, one));
                MUST(cudaStreamSynchronize(one));
            }
        }) / 2000;
    };
    printf("four bytes to pinned memory: %.3f us\n", fetches(false, true, 0));
    printf("four bytes to pageable memory: %.3f us\n", fetches(false, false, 0));
    printf("the same to pinned memory behind a launch: %.3f us\n", fetches(true, true, 0));
    printf("the same to pageable memory behind a launch: %.3f us\n", fetches(true, false, 0));
    printf("the same to pinned memory 4 us behind a launch: %.3f us\n", fetches(true, true, 4));
    printf("the same to pinned memory 20 us behind a launch: %.3f us\n", fetches(true, true, 20));
    // Every launch was done, in whatever way.
    float found;
    MUST(cudaMemcpy(&found, memory + COUNT - 1, sizeof(float), cudaMemcpyDeviceToHost));
    printf("sums: %s\n", found == launched * LAUNCHES ? "right" : "WRONG");
    return found != launched * LAUNCHES;
}
