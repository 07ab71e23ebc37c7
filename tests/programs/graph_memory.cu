// Graphs that allocate and free: made node by node, captured from streams, freed by a stream and by another graph, launched
// again with and without freeing, and what such graphs refuse.
#include "program.h"

#include <vector>

constexpr int THREADS = 128;

__global__ void fill(unsigned *values, const unsigned *seed, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = i * 2654435761u + *seed;
}

__global__ void mix(const unsigned *in, unsigned *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[n - 1 - i] ^ 0x5a5a5a5au;
}

static int n;
static size_t bytes;
static unsigned *seed, *host;

static int blocks() { return (n + THREADS - 1) / THREADS; }

static void verify(unsigned with, const char *what) {
    for (int i = 0; i < n; i++) {
        const unsigned expected = (unsigned(n - 1 - i) * 2654435761u + with) ^ 0x5a5a5a5au;
        if (host[i] != expected) Program::fail("%s: [%d] is %u instead of %u", what, i, host[i], expected);
    }
}

static void expect(cudaError_t error, cudaError_t expected, const char *what) {
    if (error != expected) Program::fail("%s: %s for %s", what, cudaGetErrorName(error), cudaGetErrorName(expected));
    cudaGetLastError();
}

static cudaMemAllocNodeParams allocation() {
    cudaMemAllocNodeParams node = {};
    node.poolProps.allocType = cudaMemAllocationTypePinned;
    node.poolProps.location.type = cudaMemLocationTypeDevice;
    node.bytesize = bytes;
    return node;
}

static cudaKernelNodeParams kernel(void *function, void **arguments) {
    cudaKernelNodeParams node = {};
    node.func = function;
    node.gridDim = dim3(blocks());
    node.blockDim = dim3(THREADS);
    node.kernelParams = arguments;
    return node;
}

static size_t footprint(cudaGraphMemAttributeType attribute) {
    unsigned long long value = 0;
    CHECK(cudaDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

// fill -> mix -> copy to the host, in memory of the graph; what `left` points to is not freed.
static cudaGraphExec_t by_nodes(unsigned **left, unsigned long long flags) {
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t first, second, filled, mixed, copied, freed;
    cudaMemAllocNodeParams of_first = allocation(), of_second = allocation();
    CHECK(cudaGraphAddMemAllocNode(&first, graph, nullptr, 0, &of_first));
    CHECK(cudaGraphAddMemAllocNode(&second, graph, &first, 1, &of_second));
    unsigned *a = static_cast<unsigned *>(of_first.dptr), *b = static_cast<unsigned *>(of_second.dptr);
    if (a == nullptr || a == b) Program::fail("allocations at %p and %p", a, b);

    cudaMemAllocNodeParams told = {};
    CHECK(cudaGraphMemAllocNodeGetParams(second, &told));
    if (told.dptr != b || told.bytesize != bytes) Program::fail("an allocation tells of %zu bytes at %p", told.bytesize, told.dptr);

    void *fill_arguments[] = {&a, &seed, &n};
    const cudaKernelNodeParams fill_node = kernel(reinterpret_cast<void *>(fill), fill_arguments);
    CHECK(cudaGraphAddKernelNode(&filled, graph, &second, 1, &fill_node));
    void *mix_arguments[] = {&a, &b, &n};
    const cudaKernelNodeParams mix_node = kernel(reinterpret_cast<void *>(mix), mix_arguments);
    CHECK(cudaGraphAddKernelNode(&mixed, graph, &filled, 1, &mix_node));
    CHECK(cudaGraphAddMemcpyNode1D(&copied, graph, &mixed, 1, host, b, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphAddMemFreeNode(&freed, graph, &mixed, 1, a));
    void *address = nullptr;
    CHECK(cudaGraphMemFreeNodeGetParams(freed, &address));
    if (address != a) Program::fail("a free tells of %p", address);
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(freed, &type));
    if (type != cudaGraphNodeTypeMemFree) Program::fail("a free is of type %d", type);
    if (left == nullptr) {
        CHECK(cudaGraphAddMemFreeNode(&freed, graph, &copied, 1, b));
    } else {
        *left = b;
    }

    // Such a graph stays as it is.
    cudaGraph_t other;
    expect(cudaGraphClone(&other, graph), cudaErrorNotSupported, "a clone");
    expect(cudaGraphDestroyNode(freed), cudaErrorNotSupported, "a node that is destroyed");
    unsigned *plain;
    CHECK(cudaMalloc(&plain, 256));
    expect(cudaGraphAddMemFreeNode(&freed, graph, &copied, 1, plain), cudaErrorInvalidValue, "a free of other memory");
    CHECK(cudaFree(plain));

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, flags));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

static cudaGraphExec_t captured(unsigned **left) {
    cudaStream_t stream, side;
    cudaEvent_t forked, joined;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&forked));
    CHECK(cudaEventCreate(&joined));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    unsigned *a, *b;
    CHECK(cudaMallocAsync(&a, bytes, stream));
    CHECK(cudaMallocAsync(&b, bytes, stream));
    fill<<<blocks(), THREADS, 0, stream>>>(a, seed, n);
    mix<<<blocks(), THREADS, 0, stream>>>(a, b, n);
    CHECK(cudaEventRecord(forked, stream));
    CHECK(cudaStreamWaitEvent(side, forked));
    CHECK(cudaFreeAsync(a, side));
    CHECK(cudaEventRecord(joined, side));
    CHECK(cudaMemcpyAsync(host, b, bytes, cudaMemcpyDeviceToHost, stream));
    if (left == nullptr) {
        CHECK(cudaFreeAsync(b, stream));
    } else {
        *left = b;
    }
    CHECK(cudaStreamWaitEvent(stream, joined));
    // A stream that was joined may end before the capture does.
    CHECK(cudaStreamDestroy(side));
    CHECK(cudaEventDestroy(forked));
    CHECK(cudaEventDestroy(joined));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    return exec;
}

// What a stream wrote down and nobody came behind is not forgotten with the stream.
static void unjoined() {
    cudaStream_t stream, side;
    cudaEvent_t forked;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&forked));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(forked, stream));
    CHECK(cudaStreamWaitEvent(side, forked));
    CHECK(cudaMemsetAsync(seed, 0, sizeof *seed, side));
    CHECK(cudaStreamDestroy(side));
    cudaGraph_t graph;
    expect(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined, "a stream that was not joined");
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaEventDestroy(forked));
}

static void run(cudaGraphExec_t exec, cudaStream_t stream, unsigned with, const char *what) {
    CHECK(cudaMemcpy(seed, &with, sizeof with, cudaMemcpyHostToDevice));
    std::memset(host, 0, bytes);
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    verify(with, what);
}

int main(int argc, char **argv) {
    Program program("graph_memory", argc, argv);
    n = program.large ? 1 << 22 : 3000;
    bytes = n * sizeof(unsigned);
    CHECK(cudaMalloc(&seed, sizeof(unsigned)));
    CHECK(cudaMallocHost(&host, bytes));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    if (footprint(cudaGraphMemAttrReservedMemCurrent) != 0) Program::fail("graphs have memory before there is one");
    for (int way = 0; way < 2; way++) {
        const cudaGraphExec_t exec = way == 0 ? by_nodes(nullptr, 0) : captured(nullptr);
        for (unsigned with = 1; with <= 3; with++) run(exec, stream, with, way == 0 ? "nodes" : "capture");
        if (footprint(cudaGraphMemAttrUsedMemHigh) < 2 * bytes) Program::fail("graphs have used too little");
        CHECK(cudaGraphExecDestroy(exec));

        // What is left is the program's until it is freed: by a stream, by cudaFree, or by another graph.
        for (int freeing = 0; freeing < 3; freeing++) {
            unsigned *left;
            const cudaGraphExec_t leaving = way == 0 ? by_nodes(&left, 0) : captured(&left);
            run(leaving, stream, 7, "a graph that leaves memory");
            expect(cudaGraphLaunch(leaving, stream), cudaErrorInvalidValue, "a second launch before memory is freed");
            std::memset(host, 0, bytes);
            CHECK(cudaMemcpy(host, left, bytes, cudaMemcpyDeviceToHost));
            verify(7, "what was left");
            if (freeing == 0) {
                CHECK(cudaFreeAsync(left, stream));
            } else if (freeing == 1) {
                CHECK(cudaFree(left));
            } else {
                cudaGraph_t graph;
                cudaGraphNode_t node;
                cudaGraphExec_t exec;
                CHECK(cudaGraphCreate(&graph, 0));
                CHECK(cudaGraphAddMemFreeNode(&node, graph, nullptr, 0, left));
                CHECK(cudaGraphInstantiate(&exec, graph, 0));
                CHECK(cudaGraphDestroy(graph));
                CHECK(cudaGraphLaunch(exec, stream));
                CHECK(cudaStreamSynchronize(stream));
                CHECK(cudaGraphExecDestroy(exec));
            }
            expect(cudaFree(left), cudaErrorInvalidValue, "a second free");
            run(leaving, stream, 8, "a launch after memory was freed");
            // It outlives its graph.
            CHECK(cudaGraphExecDestroy(leaving));
            std::memset(host, 0, bytes);
            CHECK(cudaMemcpy(host, left, bytes, cudaMemcpyDeviceToHost));
            verify(8, "what outlived its graph");
            CHECK(cudaFree(left));
        }
    }

    unjoined();
    unsigned *left;
    const cudaGraphExec_t again = by_nodes(&left, cudaGraphInstantiateFlagAutoFreeOnLaunch);
    for (unsigned with = 1; with <= 3; with++) run(again, stream, with, "memory that is freed at the next launch");
    CHECK(cudaFree(left));
    CHECK(cudaGraphExecDestroy(again));

    CHECK(cudaDeviceGraphMemTrim(0));
    unsigned long long zero = 0;
    CHECK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &zero));
    if (footprint(cudaGraphMemAttrReservedMemCurrent) != 0 || footprint(cudaGraphMemAttrReservedMemHigh) != 0) {
        Program::fail("graphs that are gone have memory");
    }
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(host));
    CHECK(cudaFree(seed));
    return Program::pass("n=%d", n);
}
