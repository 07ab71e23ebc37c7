// Graphs: captured from streams that fork and join, made node by node, replayed with changed input, updated, and what
// streams that capture refuse.
#include "program.h"

#include <chrono>
#include <thread>
#include <vector>

constexpr int THREADS = 128;

__global__ void scale(const unsigned *in, unsigned *out, unsigned factor, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * factor;
}

__global__ void add_hashed(const unsigned *in, unsigned *sums, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sums[i] += hash(in[i]);
}

__global__ void combine(const unsigned *left, const unsigned *right, unsigned *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = left[i] ^ (right[n - 1 - i] << 1);
}

// Not atomic: launches that overlap lose steps.
__global__ void step(unsigned *values, unsigned factor, unsigned term, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = values[i] * factor + term;
}

static int blocks(int n) { return (n + THREADS - 1) / THREADS; }

struct Buffers {
    unsigned *in, *out, *device_in, *scaled, *sums, *combined;
    size_t bytes;
    int n;

    explicit Buffers(int count) : bytes(count * sizeof(unsigned)), n(count) {
        CHECK(cudaMallocHost(&in, bytes));
        CHECK(cudaMallocHost(&out, bytes));
        CHECK(cudaMalloc(&device_in, bytes));
        CHECK(cudaMalloc(&scaled, bytes));
        CHECK(cudaMalloc(&sums, bytes));
        CHECK(cudaMalloc(&combined, bytes));
    }

    ~Buffers() {
        CHECK(cudaFreeHost(in));
        CHECK(cudaFreeHost(out));
        CHECK(cudaFree(device_in));
        CHECK(cudaFree(scaled));
        CHECK(cudaFree(sums));
        CHECK(cudaFree(combined));
    }

    void fill(unsigned seed) {
        for (int i = 0; i < n; i++) in[i] = hash(i + seed * 65537u);
    }

    void check(const char *what, unsigned factor) const {
        for (int i = 0; i < n; i++) {
            const unsigned expected = in[i] * factor ^ ((hash(in[n - 1 - i]) + 0x01010101u) << 1);
            if (out[i] != expected) Program::fail("%s: out[%d] = %u, not %u", what, i, out[i], expected);
        }
    }
};

static void count_call(void *calls) { ++*static_cast<volatile int *>(calls); }

// Two branches that both need the copy: work for streams, whether they capture or not.
static void pipeline(const Buffers &b, unsigned factor, cudaStream_t one, cudaStream_t two, cudaEvent_t fork,
                     cudaEvent_t join, int *calls) {
    CHECK(cudaMemcpyAsync(b.device_in, b.in, b.bytes, cudaMemcpyHostToDevice, one));
    CHECK(cudaEventRecord(fork, one));
    CHECK(cudaStreamWaitEvent(two, fork, 0));
    scale<<<blocks(b.n), THREADS, 0, one>>>(b.device_in, b.scaled, factor, b.n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemsetAsync(b.sums, 1, b.bytes, two));
    add_hashed<<<blocks(b.n), THREADS, 0, two>>>(b.device_in, b.sums, b.n);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(join, two));
    CHECK(cudaStreamWaitEvent(one, join, 0));
    combine<<<blocks(b.n), THREADS, 0, one>>>(b.scaled, b.sums, b.combined, b.n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(b.out, b.combined, b.bytes, cudaMemcpyDeviceToHost, one));
    CHECK(cudaLaunchHostFunc(one, count_call, calls));
}

static cudaGraph_t captured(const Buffers &b, unsigned factor, cudaStream_t one, cudaStream_t two, cudaEvent_t fork,
                            cudaEvent_t join, int *calls) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    pipeline(b, factor, one, two, fork, join, calls);
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(two, &status));
    if (status != cudaStreamCaptureStatusActive) Program::fail("the stream that forked off does not capture");
    CHECK(cudaStreamEndCapture(one, &graph));
    CHECK(cudaStreamIsCapturing(two, &status));
    if (status != cudaStreamCaptureStatusNone) Program::fail("a stream captures for ever");
    return graph;
}

static void check_nodes(cudaGraph_t graph) {
    size_t count = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
    int kinds[16] = {};
    for (const cudaGraphNode_t node : nodes) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(node, &type));
        kinds[type]++;
    }
    if (count != 7 || kinds[cudaGraphNodeTypeKernel] != 3 || kinds[cudaGraphNodeTypeMemcpy] != 2 ||
        kinds[cudaGraphNodeTypeMemset] != 1 || kinds[cudaGraphNodeTypeHost] != 1) {
        Program::fail("captured %zu nodes: %d kernels, %d copies, %d fills, %d host functions", count,
                      kinds[cudaGraphNodeTypeKernel], kinds[cudaGraphNodeTypeMemcpy],
                      kinds[cudaGraphNodeTypeMemset], kinds[cudaGraphNodeTypeHost]);
    }
    size_t edges = 0, roots = 0;
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    CHECK(cudaGraphGetRootNodes(graph, nullptr, &roots));
    if (edges != 7 || roots != 1) Program::fail("captured %zu edges and %zu roots", edges, roots);
}

// Captures a pipeline, replays it, updates it, and compares each time with what it should compute.
static void replay(int n, int rounds) {
    Buffers b(n);
    cudaStream_t one, two;
    cudaEvent_t fork, join;
    CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));

    int calls = 0;
    b.fill(0);
    pipeline(b, 3, one, two, fork, join, &calls);
    CHECK(cudaStreamSynchronize(one));
    b.check("without a graph", 3);

    std::memset(b.out, 0, b.bytes);
    cudaGraph_t graph = captured(b, 5, one, two, fork, join, &calls);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) {
        if (b.out[i] != 0) Program::fail("what was captured was done: out[%d] = %u", i, b.out[i]);
    }
    if (calls != 1) Program::fail("%d calls of the host function, not 1", calls);
    check_nodes(graph);

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphUpload(exec, one));
    for (int round = 1; round <= rounds; round++) {
        b.fill(round);
        CHECK(cudaGraphLaunch(exec, round % 2 == 0 ? one : two));
        CHECK(cudaStreamSynchronize(round % 2 == 0 ? one : two));
        b.check("replay", 5);
    }
    if (calls != 1 + rounds) Program::fail("%d calls of the host function, not %d", calls, 1 + rounds);

    // The same shape with another parameter.
    cudaGraph_t other = captured(b, 11, one, two, fork, join, &calls);
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, other, &info));
    b.fill(1000);
    CHECK(cudaGraphLaunch(exec, one));
    CHECK(cudaStreamSynchronize(one));
    b.check("updated", 11);

    // Another shape changes nothing.
    cudaGraphNode_t extra;
    CHECK(cudaGraphAddEmptyNode(&extra, other, nullptr, 0));
    if (cudaGraphExecUpdate(exec, other, &info) != cudaErrorGraphExecUpdateFailure ||
        info.result != cudaGraphExecUpdateErrorTopologyChanged) {
        Program::fail("an update to another shape gives %d", info.result);
    }
    (void)cudaGetLastError();
    b.fill(1001);
    CHECK(cudaGraphLaunch(exec, one));
    CHECK(cudaStreamSynchronize(one));
    b.check("after a refused update", 11);

    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(other));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaStreamDestroy(one));
    CHECK(cudaStreamDestroy(two));
}

// Nodes made one by one, a child graph, and changes of an executable graph.
static void explicit_graph(int n) {
    const size_t bytes = n * sizeof(unsigned);
    unsigned *values, *out;
    CHECK(cudaMalloc(&values, bytes));
    CHECK(cudaMallocHost(&out, bytes));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));

    cudaGraph_t graph, child;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&child, 0));
    unsigned factor = 3, term = 7;
    void *arguments[] = {&values, &factor, &term, &n};
    cudaKernelNodeParams kernel = {};
    kernel.func = reinterpret_cast<void *>(step);
    kernel.gridDim = dim3(blocks(n));
    kernel.blockDim = dim3(THREADS);
    kernel.kernelParams = arguments;
    cudaGraphNode_t begun, filled, stepped, inside, nested, copied, ended;
    CHECK(cudaGraphAddEventRecordNode(&begun, graph, nullptr, 0, begin));
    cudaMemsetParams fill = {};
    fill.dst = values;
    fill.value = 2;
    fill.elementSize = 4;
    fill.width = n;
    fill.height = 1;
    CHECK(cudaGraphAddMemsetNode(&filled, graph, &begun, 1, &fill));
    CHECK(cudaGraphAddKernelNode(&stepped, graph, &filled, 1, &kernel));
    // The parameters were copied: what they were copied from may change.
    factor = 5;
    term = 1;
    CHECK(cudaGraphAddKernelNode(&inside, child, nullptr, 0, &kernel));
    factor = term = 0xDEAD;
    CHECK(cudaGraphAddChildGraphNode(&nested, graph, &stepped, 1, child));
    CHECK(cudaGraphAddMemcpyNode1D(&copied, graph, nullptr, 0, out, values, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphAddDependencies(graph, &nested, &copied, nullptr, 1));
    CHECK(cudaGraphAddEventRecordNode(&ended, graph, &copied, 1, end));

    cudaKernelNodeParams told = {};
    CHECK(cudaGraphKernelNodeGetParams(stepped, &told));
    if (told.blockDim.x != THREADS || *static_cast<unsigned *>(told.kernelParams[1]) != 3) {
        Program::fail("a kernel node has blocks of %u threads, and another factor", told.blockDim.x);
    }

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    const auto expect = [&](const char *what, unsigned expected) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < n; i++) {
            if (out[i] != expected) Program::fail("%s: out[%d] = %u, not %u", what, i, out[i], expected);
        }
    };
    expect("nodes", (2 * 3 + 7) * 5 + 1);
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (milliseconds < 0) Program::fail("a graph took %g ms", milliseconds);

    factor = 10;
    term = 4;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, stepped, &kernel));
    expect("another parameter", (2 * 10 + 4) * 5 + 1);
    fill.value = 9;
    CHECK(cudaGraphExecMemsetNodeSetParams(exec, filled, &fill));
    expect("another value", (9 * 10 + 4) * 5 + 1);
    CHECK(cudaGraphNodeSetEnabled(exec, stepped, 0));
    expect("without a node", 9 * 5 + 1);
    CHECK(cudaGraphNodeSetEnabled(exec, stepped, 1));

    // A clone is independent of what it was cloned from.
    cudaGraph_t clone;
    CHECK(cudaGraphClone(&clone, graph));
    cudaGraphNode_t in_clone;
    CHECK(cudaGraphNodeFindInClone(&in_clone, stepped, clone));
    factor = 1;
    term = 0;
    CHECK(cudaGraphKernelNodeSetParams(in_clone, &kernel));
    CHECK(cudaGraphDestroy(graph));
    expect("after its graph", (9 * 10 + 4) * 5 + 1);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphInstantiate(&exec, clone, 0));
    expect("a clone", 2 * 5 + 1);

    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(clone));
    CHECK(cudaGraphDestroy(child));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(values));
    CHECK(cudaFreeHost(out));
}

// Launches of one executable graph come one after the other, whatever streams they are in; branches of a wide one meet.
static void order(int n, int rounds) {
    constexpr int BRANCHES = 12;
    unsigned *values, *wide;
    CHECK(cudaMalloc(&values, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&wide, BRANCHES * n * sizeof(unsigned)));
    CHECK(cudaMemset(values, 0, n * sizeof(unsigned)));
    CHECK(cudaMemset(wide, 0, BRANCHES * n * sizeof(unsigned)));
    CHECK(cudaDeviceSynchronize());
    cudaStream_t streams[3];
    for (cudaStream_t &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
    step<<<blocks(n), THREADS, 0, streams[0]>>>(values, 3, 1, n);
    step<<<blocks(n), THREADS, 0, streams[0]>>>(values, 5, 2, n);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamEndCapture(streams[0], &graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    unsigned expected = 0;
    for (int round = 0; round < rounds; round++) {
        CHECK(cudaGraphLaunch(exec, streams[round % 3]));
        expected = (expected * 3 + 1) * 5 + 2;
    }
    CHECK(cudaDeviceSynchronize());
    std::vector<unsigned> out(BRANCHES * n);
    CHECK(cudaMemcpy(out.data(), values, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        if (out[i] != expected) Program::fail("launches overlap: [%d] = %u, not %u", i, out[i], expected);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));

    // More branches than streams run side by side, each of two kernels, then one node that waits for all of them.
    CHECK(cudaGraphCreate(&graph, 0));
    std::vector<cudaGraphNode_t> ends;
    unsigned factor = 2, term;
    unsigned *at;
    int count = n;
    void *arguments[] = {&at, &factor, &term, &count};
    cudaKernelNodeParams kernel = {};
    kernel.func = reinterpret_cast<void *>(step);
    kernel.gridDim = dim3(blocks(n));
    kernel.blockDim = dim3(THREADS);
    kernel.kernelParams = arguments;
    for (int branch = 0; branch < BRANCHES; branch++) {
        cudaGraphNode_t first, second;
        at = wide + branch * n;
        term = branch + 1;
        CHECK(cudaGraphAddKernelNode(&first, graph, nullptr, 0, &kernel));
        term = 100;
        CHECK(cudaGraphAddKernelNode(&second, graph, &first, 1, &kernel));
        ends.push_back(second);
    }
    cudaGraphNode_t all;
    at = wide;
    count = BRANCHES * n;
    term = 1;
    kernel.gridDim = dim3(blocks(count));
    CHECK(cudaGraphAddKernelNode(&all, graph, ends.data(), ends.size(), &kernel));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    // Also in the stream that waits for all others.
    CHECK(cudaGraphLaunch(exec, nullptr));
    CHECK(cudaMemcpy(out.data(), wide, BRANCHES * n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int i = 0; i < BRANCHES * n; i++) {
        const unsigned value = ((i / n + 1) * 2 + 100) * 2 + 1;
        if (out[i] != value) Program::fail("branches: [%d] = %u, not %u", i, out[i], value);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    for (const cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(values));
    CHECK(cudaFree(wide));
}

__global__ void mix(const unsigned *left, const unsigned *right, unsigned *out, unsigned salt, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = hash(left[i] * 3u + right[n - 1 - i] + salt);
}

// The same random work, with the events that it needs, for streams that capture and for streams that do not.
class RandomWork {
public:
    RandomWork(unsigned seed, int count) : n(count), bytes(count * sizeof(unsigned)) {
        for (unsigned *&buffer : buffers) CHECK(cudaMalloc(&buffer, bytes));
        for (cudaStream_t &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (cudaEvent_t &event : events) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        unsigned word = seed;
        const auto draw = [&](unsigned below) { return (word = hash(word + 0x9E3779B9u)) % below; };
        for (int o = 0; o < OPERATIONS; o++) {
            operations[o] = {static_cast<int>(draw(STREAMS)), static_cast<int>(draw(5)), static_cast<int>(draw(BUFFERS)),
                             static_cast<int>(draw(BUFFERS)), static_cast<int>(draw(BUFFERS)), word};
            if (operations[o].left == operations[o].out) operations[o].left = (operations[o].left + 1) % BUFFERS;
            if (operations[o].right == operations[o].out) operations[o].right = (operations[o].right + 1) % BUFFERS;
        }
    }

    ~RandomWork() {
        for (unsigned *buffer : buffers) CHECK(cudaFree(buffer));
        for (const cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
        for (const cudaEvent_t event : events) CHECK(cudaEventDestroy(event));
    }

    cudaStream_t origin() const { return streams[0]; }

    // Gives all of it to the streams; the first of them goes on when all is done.
    void submit() const {
        CHECK(cudaEventRecord(events[OPERATIONS], streams[0]));
        for (int s = 1; s < STREAMS; s++) CHECK(cudaStreamWaitEvent(streams[s], events[OPERATIONS], 0));
        for (int o = 0; o < OPERATIONS; o++) {
            const Operation &op = operations[o];
            const cudaStream_t stream = streams[op.stream];
            for (int before = 0; before < o; before++) {
                if (operations[before].stream != op.stream && conflict(operations[before], op)) {
                    CHECK(cudaStreamWaitEvent(stream, events[before], 0));
                }
            }
            unsigned *const out = buffers[op.out];
            if (op.kind == 0) {
                CHECK(cudaMemcpyAsync(out, buffers[op.left], bytes, cudaMemcpyDeviceToDevice, stream));
            } else if (op.kind == 1) {
                CHECK(cudaMemsetAsync(out, op.salt & 0xFF, bytes / 2, stream));
            } else {
                mix<<<blocks(n), THREADS, 0, stream>>>(buffers[op.left], buffers[op.right], out, op.salt, n);
                CHECK(cudaGetLastError());
            }
            CHECK(cudaEventRecord(events[o], stream));
        }
        for (int s = 1; s < STREAMS; s++) {
            CHECK(cudaEventRecord(events[OPERATIONS + s], streams[s]));
            CHECK(cudaStreamWaitEvent(streams[0], events[OPERATIONS + s], 0));
        }
    }

    void reset() const {
        std::vector<unsigned> values(n);
        for (int b = 0; b < BUFFERS; b++) {
            for (int i = 0; i < n; i++) values[i] = hash(b * 1000003u + i);
            CHECK(cudaMemcpy(buffers[b], values.data(), bytes, cudaMemcpyHostToDevice));
        }
        CHECK(cudaDeviceSynchronize());
    }

    std::vector<unsigned> result() const {
        std::vector<unsigned> values(BUFFERS * n);
        CHECK(cudaStreamSynchronize(streams[0]));
        for (int b = 0; b < BUFFERS; b++) {
            CHECK(cudaMemcpy(values.data() + b * n, buffers[b], bytes, cudaMemcpyDeviceToHost));
        }
        return values;
    }

private:
    static constexpr int STREAMS = 5, BUFFERS = 7, OPERATIONS = 40;

    struct Operation {
        int stream, kind, left, right, out;
        unsigned salt;
    };

    static bool reads(const Operation &op, int buffer) {
        return (op.kind != 1 && op.left == buffer) || (op.kind > 1 && op.right == buffer);
    }

    static bool conflict(const Operation &one, const Operation &two) {
        return one.out == two.out || reads(one, two.out) || reads(two, one.out);
    }

    int n;
    size_t bytes;
    unsigned *buffers[BUFFERS];
    cudaStream_t streams[STREAMS];
    cudaEvent_t events[OPERATIONS + STREAMS];
    Operation operations[OPERATIONS];
};

// Random work computes the same with a graph and without, also where two launches follow one another.
static void same_as_without(int n, int seeds) {
    for (int seed = 1; seed <= seeds; seed++) {
        const RandomWork work(seed, n);
        work.reset();
        work.submit();
        const std::vector<unsigned> once = work.result();
        work.submit();
        const std::vector<unsigned> twice = work.result();

        cudaGraph_t graph;
        cudaGraphExec_t exec;
        CHECK(cudaStreamBeginCapture(work.origin(), cudaStreamCaptureModeGlobal));
        work.submit();
        CHECK(cudaStreamEndCapture(work.origin(), &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        for (int round = 0; round < 3; round++) {
            work.reset();
            CHECK(cudaGraphLaunch(exec, work.origin()));
            if (work.result() != once) Program::fail("random work of seed %d differs with a graph", seed);
        }
        CHECK(cudaGraphLaunch(exec, work.origin()));
        if (work.result() != twice) Program::fail("random work of seed %d differs the second time", seed);
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
    }
}

// Graphs that several threads launch at once do not get into each other's way.
static void at_once(int n, int rounds) {
    constexpr int THREADS_AT_ONCE = 4;
    std::vector<std::thread> threads;
    std::vector<RandomWork *> works;
    std::vector<cudaGraphExec_t> execs(THREADS_AT_ONCE);
    std::vector<std::vector<unsigned>> expected;
    for (int t = 0; t < THREADS_AT_ONCE; t++) {
        works.push_back(new RandomWork(100 + t, n));
        works[t]->reset();
        works[t]->submit();
        expected.push_back(works[t]->result());
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(works[t]->origin(), cudaStreamCaptureModeThreadLocal));
        works[t]->submit();
        CHECK(cudaStreamEndCapture(works[t]->origin(), &graph));
        CHECK(cudaGraphInstantiate(&execs[t], graph, 0));
        CHECK(cudaGraphDestroy(graph));
    }
    for (int t = 0; t < THREADS_AT_ONCE; t++) {
        threads.emplace_back([&, t] {
            for (int round = 0; round < rounds; round++) {
                works[t]->reset();
                CHECK(cudaGraphLaunch(execs[t], works[t]->origin()));
                if (works[t]->result() != expected[t]) Program::fail("graph %d of several at once differs", t);
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    for (int t = 0; t < THREADS_AT_ONCE; t++) {
        CHECK(cudaGraphExecDestroy(execs[t]));
        delete works[t];
    }
}

// Microseconds of the host's for a kernel of a line of them: in a graph, and launched one by one.
static void times(int rounds, double *in_graph, double *one_by_one) {
    constexpr int KERNELS = 50;
    unsigned *value;
    CHECK(cudaMalloc(&value, sizeof(unsigned)));
    CHECK(cudaMemset(value, 0, sizeof(unsigned)));
    CHECK(cudaDeviceSynchronize());
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const auto launch = [&] {
        for (int k = 0; k < KERNELS; k++) step<<<1, 32, 0, stream>>>(value, 1, 1, 1);
        CHECK(cudaGetLastError());
    };
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    launch();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const auto time = [&](auto &&work) {
        double least = 1e9;
        for (int round = 0; round < rounds; round++) {
            CHECK(cudaStreamSynchronize(stream));
            const auto start = std::chrono::steady_clock::now();
            work();
            const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
            if (taken.count() < least) least = taken.count();
        }
        return least / KERNELS;
    };
    *in_graph = time([&] { CHECK(cudaGraphLaunch(exec, stream)); });
    *one_by_one = time(launch);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(value));
}

static void expect(cudaError_t error, cudaError_t expected, const char *what) {
    if (error != expected) {
        Program::fail("%s: %s, not %s", what, cudaGetErrorName(error), cudaGetErrorName(expected));
    }
    (void)cudaGetLastError();
}

// What must not be asked while a stream captures, and that it goes on as ever afterwards.
static void refusals(int n) {
    unsigned *values;
    CHECK(cudaMalloc(&values, n * sizeof(unsigned)));
    cudaStream_t free_stream, other, blocking;
    CHECK(cudaStreamCreateWithFlags(&free_stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaStreamCreate(&blocking));
    cudaEvent_t event, before;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&before, cudaEventDisableTiming));
    cudaGraph_t graph = nullptr;
    const auto begin = [&](cudaStream_t stream, cudaStreamCaptureMode mode) {
        CHECK(cudaStreamBeginCapture(stream, mode));
        step<<<blocks(n), THREADS, 0, stream>>>(values, 1, 1, n);
        CHECK(cudaGetLastError());
    };
    const auto end = [&](cudaStream_t stream, cudaError_t expected, const char *what) {
        graph = nullptr;
        expect(cudaStreamEndCapture(stream, &graph), expected, what);
        if (expected != cudaSuccess && graph != nullptr) Program::fail("%s: there is a graph", what);
        if (expected == cudaSuccess) CHECK(cudaGraphDestroy(graph));
        CHECK(cudaStreamSynchronize(stream));
    };

    begin(free_stream, cudaStreamCaptureModeGlobal);
    expect(cudaStreamSynchronize(free_stream), cudaErrorStreamCaptureUnsupported, "waiting for a capture");
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(free_stream, &status));
    if (status != cudaStreamCaptureStatusInvalidated) Program::fail("the capture is still valid");
    end(free_stream, cudaErrorStreamCaptureInvalidated, "the end of an invalid capture");

    begin(free_stream, cudaStreamCaptureModeGlobal);
    void *memory = nullptr;
    expect(cudaMalloc(&memory, 4096), cudaErrorStreamCaptureUnsupported, "cudaMalloc in a global capture");
    end(free_stream, cudaErrorStreamCaptureInvalidated, "the end after cudaMalloc");
    begin(free_stream, cudaStreamCaptureModeRelaxed);
    CHECK(cudaMalloc(&memory, 4096));
    CHECK(cudaFree(memory));
    end(free_stream, cudaSuccess, "the end of a relaxed capture");

    begin(free_stream, cudaStreamCaptureModeGlobal);
    CHECK(cudaEventRecord(event, free_stream));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    step<<<blocks(n), THREADS, 0, other>>>(values, 1, 1, n);
    CHECK(cudaGetLastError());
    end(free_stream, cudaErrorStreamCaptureUnjoined, "a branch that does not come back");
    CHECK(cudaStreamIsCapturing(other, &status));
    if (status != cudaStreamCaptureStatusNone) Program::fail("a branch captures for ever");

    CHECK(cudaEventRecord(before, other));
    begin(free_stream, cudaStreamCaptureModeGlobal);
    expect(cudaStreamWaitEvent(free_stream, before, 0), cudaErrorStreamCaptureIsolation,
           "waiting for what is not captured");
    end(free_stream, cudaErrorStreamCaptureInvalidated, "the end after that");

    begin(blocking, cudaStreamCaptureModeRelaxed);
    expect(cudaMemsetAsync(values, 0, 4, nullptr), cudaErrorStreamCaptureImplicit,
           "the default stream while a blocking one captures");
    end(blocking, cudaErrorStreamCaptureInvalidated, "the end after the default stream");

    begin(free_stream, cudaStreamCaptureModeRelaxed);
    CHECK(cudaEventRecord(event, free_stream));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    expect(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched, "an end in another stream");
    if (cudaStreamEndCapture(free_stream, &graph) == cudaSuccess) CHECK(cudaGraphDestroy(graph));
    (void)cudaGetLastError();

    // A cycle cannot be made executable.
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t one, two;
    CHECK(cudaGraphAddEmptyNode(&one, graph, nullptr, 0));
    CHECK(cudaGraphAddEmptyNode(&two, graph, &one, 1));
    cudaError_t error = cudaGraphAddDependencies(graph, &two, &one, nullptr, 1);
    cudaGraphExec_t exec;
    if (error == cudaSuccess) error = cudaGraphInstantiate(&exec, graph, 0);
    if (error == cudaSuccess) Program::fail("a graph with a cycle is executable");
    (void)cudaGetLastError();
    CHECK(cudaGraphDestroy(graph));

    CHECK(cudaEventDestroy(event));
    CHECK(cudaEventDestroy(before));
    CHECK(cudaStreamDestroy(free_stream));
    CHECK(cudaStreamDestroy(other));
    CHECK(cudaStreamDestroy(blocking));
    CHECK(cudaFree(values));
}

int main(int argc, char **argv) {
    const Program program("graphs", argc, argv);
    const int n = program.large ? 1 << 20 : 1000, rounds = 100;
    replay(n, rounds);
    explicit_graph(n);
    order(n, rounds);
    same_as_without(program.large ? 1 << 18 : 300, program.large ? 20 : 6);
    at_once(program.large ? 1 << 16 : 200, program.large ? 50 : 5);
    refusals(n);
    double in_graph, one_by_one;
    times(program.large ? 200 : 5, &in_graph, &one_by_one);
    return Program::pass("%d replays of 7 nodes over %d words; %.3f us a kernel in a graph, %.3f us one by one", rounds,
                         n, in_graph, one_by_one);
}
