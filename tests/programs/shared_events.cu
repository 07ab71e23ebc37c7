// Events that processes share: streams of two processes that wait for each other, and processes that end meanwhile.
#include "peer.h"

#include <thread>

static const int WORDS = 1 << 14;
static const int ROUNDS = 24;

// Takes its time, and then writes a word everywhere.
__global__ void write_late(unsigned *words, unsigned value, unsigned rounds) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned waste = i;
    for (unsigned round = 0; round < rounds; round++) waste = hash(waste);
    words[i] = waste == 0x12345u ? value + (waste == 0x54321u) : value;
}

__global__ void verify(const unsigned *words, unsigned value, unsigned *wrong) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (words[i] != value) atomicAdd(wrong, 1u);
}

// Runs until somebody writes a word, which nobody does.
__global__ void endless(volatile unsigned *word) {
    while (*word == 0) {}
}

// What both processes have: the memory, and an event for each of them.
struct Shared {
    unsigned *words, *wrong;
    cudaEvent_t mine, others;
    cudaStream_t stream;

    void prepare() {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaMalloc(&wrong, sizeof *wrong));
        CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    }

    void write(unsigned value, unsigned rounds) const {
        write_late<<<WORDS / 256, 256, 0, stream>>>(words, value, rounds);
        CHECK(cudaGetLastError());
    }

    void expect(unsigned value) const {
        verify<<<WORDS / 256, 256, 0, stream>>>(words, value, wrong);
        CHECK(cudaGetLastError());
    }

    void finish(const char *who) const {
        unsigned found = 0;
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost));
        if (found != 0) Program::fail("%s: %u words are wrong", who, found);
        CHECK(cudaFree(wrong));
        CHECK(cudaStreamDestroy(stream));
    }
};

struct Handles {
    cudaIpcMemHandle_t words;
    cudaIpcEventHandle_t first, second;
};

// Writes one value after the other's, in turns. Only streams wait, and the hosts tell each other what they have recorded.
static void take_turns(const Shared &shared, const Peer &peer, bool begins, unsigned rounds) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (!begins || round > 0) {
            char turn;
            peer.receive(&turn, 1);
            CHECK(cudaStreamWaitEvent(shared.stream, shared.others, 0));
            shared.expect(begins ? 2 * round : 2 * round + 1);
        }
        shared.write(begins ? 2 * round + 1 : 2 * round + 2, rounds);
        CHECK(cudaEventRecord(shared.mine, shared.stream));
        peer.send("t", 1);
    }
}

static void take_part(const Peer &peer, unsigned rounds) {
    Handles handles;
    Shared shared;
    peer.receive(&handles, sizeof handles);
    shared.prepare();
    CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void **>(&shared.words), handles.words, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenEventHandle(&shared.others, handles.first));
    CHECK(cudaIpcOpenEventHandle(&shared.mine, handles.second));
    // Nobody has recorded it.
    CHECK(cudaEventQuery(shared.others));
    CHECK(cudaEventSynchronize(shared.others));
    peer.meet();
    take_turns(shared, peer, false, rounds);
    shared.finish("the second process");
    peer.meet();

    // The other one's event while its stream is not there, and once it is.
    peer.meet();
    cudaError_t found = cudaEventQuery(shared.others);
    if (found != cudaSuccess && found != cudaErrorNotReady) Program::fail("a query says %d", found);
    CHECK(cudaEventSynchronize(shared.others));
    CHECK(cudaEventQuery(shared.others));
    unsigned word = 0;
    CHECK(cudaMemcpy(&word, shared.words, sizeof word, cudaMemcpyDeviceToHost));
    if (word != 1000) Program::fail("the event came before the work: %u", word);
    float time;
    if (cudaEventElapsedTime(&time, shared.others, shared.mine) != cudaErrorInvalidResourceHandle) {
        Program::fail("an event without times tells one");
    }
    cudaGetLastError();
    // Recorded here, and waited for by the other once this process has ended.
    CHECK(cudaEventRecord(shared.mine, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventDestroy(shared.mine));
    CHECK(cudaEventDestroy(shared.others));
    CHECK(cudaIpcCloseMemHandle(shared.words));
}

static void share(const Second &second, unsigned rounds) {
    const Peer &peer = second.peer;
    Handles handles;
    Shared shared;
    shared.prepare();
    CHECK(cudaMalloc(&shared.words, WORDS * sizeof(unsigned)));
    CHECK(cudaIpcGetMemHandle(&handles.words, shared.words));
    CHECK(cudaEventCreateWithFlags(&shared.mine, cudaEventDisableTiming | cudaEventInterprocess));
    CHECK(cudaEventCreateWithFlags(&shared.others, cudaEventDisableTiming | cudaEventInterprocess));
    CHECK(cudaIpcGetEventHandle(&handles.first, shared.mine));
    CHECK(cudaIpcGetEventHandle(&handles.second, shared.others));
    peer.send(&handles, sizeof handles);
    peer.meet();
    take_turns(shared, peer, true, rounds);
    char turn;
    peer.receive(&turn, 1);
    CHECK(cudaEventSynchronize(shared.others));
    shared.expect(2 * ROUNDS);
    peer.meet();

    shared.write(1000, 20 * rounds);
    CHECK(cudaEventRecord(shared.mine, shared.stream));
    peer.meet();
    second.join();
    CHECK(cudaEventSynchronize(shared.others));
    CHECK(cudaEventQuery(shared.others));
    shared.finish("the first process");
    CHECK(cudaEventDestroy(shared.mine));
    CHECK(cudaEventDestroy(shared.others));
    CHECK(cudaFree(shared.words));
}

// What only is defined on Bulkhead: the other process ends, and nobody waits on for it. Its kernel is ended with it, and what
// its stream was to do after that is done or not: the event comes, or who waits gets an error.

static void expect_either(cudaError_t found, const char *what) {
    if (found != cudaSuccess && found != cudaErrorInvalidResourceHandle) Program::fail("%s: %d", what, found);
    cudaGetLastError();
}

// Records an event behind work that never ends. Whose event that is `owns` says.
static void get_stuck(const Peer &peer, bool owns) {
    cudaIpcEventHandle_t handle;
    cudaEvent_t event;
    unsigned *word;
    CHECK(cudaMalloc(&word, sizeof *word));
    CHECK(cudaMemset(word, 0, sizeof *word));
    if (owns) {
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
        CHECK(cudaIpcGetEventHandle(&handle, event));
        peer.send(&handle, sizeof handle);
    } else {
        peer.receive(&handle, sizeof handle);
        CHECK(cudaIpcOpenEventHandle(&event, handle));
    }
    // Whoever maps something of a process waits for what runs there.
    peer.meet();
    endless<<<1, 1>>>(word);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(event, 0));
    peer.meet();
    for (;;) pause();
}

static void outlive(const Second &second, bool owns) {
    const Peer &peer = second.peer;
    cudaIpcEventHandle_t handle;
    cudaEvent_t event;
    cudaStream_t stream;
    unsigned *words;
    CHECK(cudaMalloc(&words, WORDS * sizeof(unsigned)));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (owns) {
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
        CHECK(cudaIpcGetEventHandle(&handle, event));
        peer.send(&handle, sizeof handle);
    } else {
        peer.receive(&handle, sizeof handle);
        CHECK(cudaIpcOpenEventHandle(&event, handle));
    }
    peer.meet();
    peer.meet();
    if (cudaEventQuery(event) != cudaErrorNotReady) Program::fail("work that does not end has ended");
    CHECK(cudaStreamWaitEvent(stream, event, 0));
    if (cudaStreamQuery(stream) != cudaErrorNotReady) Program::fail("a stream does not wait");
    // Other streams go on.
    write_late<<<WORDS / 256, 256>>>(words, 1, 10);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(0));
    std::thread ends([&] {
        usleep(200000);
        second.end();
    });
    expect_either(cudaEventSynchronize(event), "the event of a process that has ended");
    ends.join();
    expect_either(cudaStreamSynchronize(stream), "a stream that waits for a process that has ended");
    if (!owns) {
        // Its event ends with it.
        int looks = 0;
        while (cudaEventQuery(event) != cudaErrorInvalidResourceHandle) {
            if (++looks == 3000) Program::fail("an event is there without its process");
            usleep(10000);
        }
        cudaGetLastError();
    }
    write_late<<<WORDS / 256, 256, 0, stream>>>(words, 2, 10);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(words));
}

static void refuse() {
    cudaEvent_t event, own;
    cudaIpcEventHandle_t handle;
    std::memset(&handle, 0, sizeof handle);
    if (cudaIpcOpenEventHandle(&event, handle) == cudaSuccess) Program::fail("zeros are an event");
    if (cudaEventCreateWithFlags(&event, cudaEventInterprocess) == cudaSuccess) Program::fail("an event for others has times");
    CHECK(cudaEventCreateWithFlags(&own, cudaEventDisableTiming));
    if (cudaIpcGetEventHandle(&handle, own) == cudaSuccess) Program::fail("any event is for others");
    cudaGetLastError();
    CHECK(cudaEventDestroy(own));
}

int main(int argc, char **argv) {
    const Program program("shared_events", argc, argv);
    const unsigned rounds = program.large ? 20000 : 200;
    const Second second([&](const Peer &peer) { take_part(peer, rounds); });
    if (is_contained()) {
        const Second owner([](const Peer &peer) { get_stuck(peer, true); });
        const Second recorder([](const Peer &peer) { get_stuck(peer, false); });
        share(second, rounds);
        outlive(owner, false);
        outlive(recorder, true);
    } else {
        share(second, rounds);
    }
    refuse();
    return Program::pass("rounds=%d", ROUNDS);
}
