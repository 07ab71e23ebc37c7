// As frameworks do: 128 streams are made at the start, and few of them are used. Each of those has its own order; their
// priorities are told; what was never used is destroyed as what was. Then all of them are used, more than a session has.
#include "program.h"

constexpr int MADE = 128, USED = 20, TURNS = 50;

__global__ void add(unsigned *to, unsigned term) { *to += term; }

int main(int argc, char **argv) {
    const Program program("many_streams", argc, argv);
    int least, greatest;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t streams[MADE];
    for (int k = 0; k < MADE; k++) {
        CHECK(cudaStreamCreateWithPriority(&streams[k], cudaStreamNonBlocking, k % 2 ? greatest : least));
    }
    for (int k = 0; k < MADE; k++) {
        for (int before = 0; before < k; before++) {
            if (streams[before] == streams[k]) Program::fail("two streams have one handle");
        }
    }
    unsigned *sums;
    CHECK(cudaMalloc(&sums, USED * sizeof *sums));
    CHECK(cudaMemset(sums, 0, USED * sizeof *sums));
    CHECK(cudaDeviceSynchronize());
    // From both ends: those that are there at once, and those that are made now.
    auto used = [&](int k) { return streams[k % 2 ? MADE - 1 - k : k]; };
    for (int turn = 0; turn < TURNS; turn++) {
        for (int k = 0; k < USED; k++) add<<<1, 1, 0, used(k)>>>(sums + k, turn * (k + 1));
    }
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    for (int k = 1; k < USED; k++) {
        CHECK(cudaEventRecord(event, used(k)));
        CHECK(cudaStreamWaitEvent(used(0), event, 0));
    }
    unsigned found[USED];
    CHECK(cudaMemcpyAsync(found, sums, sizeof found, cudaMemcpyDeviceToHost, used(0)));
    CHECK(cudaStreamSynchronize(used(0)));
    for (unsigned k = 0; k < USED; k++) {
        if (found[k] != (k + 1) * TURNS * (TURNS - 1) / 2) Program::fail("stream %u: %u", k, found[k]);
    }
    int priority;
    CHECK(cudaStreamGetPriority(used(1), &priority));
    if (priority != (((MADE - 1 - 1) % 2) ? greatest : least)) Program::fail("priority %d", priority);
    unsigned *all;
    CHECK(cudaMalloc(&all, MADE * sizeof *all));
    CHECK(cudaMemset(all, 0, MADE * sizeof *all));
    CHECK(cudaDeviceSynchronize());
    for (int turn = 0; turn < 5; turn++) {
        for (int k = 0; k < MADE; k++) add<<<1, 1, 0, streams[k]>>>(all + k, k + turn);
    }
    // The first half goes while its work may still run.
    for (int k = 0; k < MADE / 2; k++) CHECK(cudaStreamDestroy(streams[k]));
    for (int k = MADE / 2; k < MADE; k++) {
        add<<<1, 1, 0, streams[k]>>>(all + k, 1);
        CHECK(cudaStreamSynchronize(streams[k]));
        CHECK(cudaStreamDestroy(streams[k]));
    }
    CHECK(cudaDeviceSynchronize());
    unsigned each[MADE];
    CHECK(cudaMemcpy(each, all, sizeof each, cudaMemcpyDeviceToHost));
    for (unsigned k = 0; k < MADE; k++) {
        if (each[k] != 5 * k + 10 + (k >= MADE / 2)) Program::fail("of all, stream %u: %u", k, each[k]);
    }
    CHECK(cudaFree(all));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaFree(sums));
    return Program::pass("%d streams made, %d used", MADE, USED);
}
