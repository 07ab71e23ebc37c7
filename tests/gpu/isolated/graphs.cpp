// Question 2: straight graphs whose nodes are changed before each launch, against launching the kernels one by one.

#include "common.h"

struct Block {
    CUdeviceptr sum;
    Word value;
};

static CUfunction add, subtract, spin;
static CUstream stream;
static CUdeviceptr sum;

struct Straight {
    CUgraph graph;
    std::vector<CUgraphNode> nodes;
    CUgraphExec executable;
};

// The parameters of a node, kept until it has been given to the driver.
struct Parameters {
    Block block;
    size_t size = sizeof(Block);
    void *extra[5] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    CUDA_KERNEL_NODE_PARAMS node = {};
    explicit Parameters(Word value, CUfunction function = add) : block{sum, value} {
        node.func = function;
        node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1;
        node.extra = extra;
    }
    Parameters(const Parameters &) = delete;
};

static Straight straight(int count, bool instantiate = true) {
    Straight made = {};
    MUST(cuGraphCreate(&made.graph, 0));
    const Parameters parameters(1);
    for (int node = 0; node < count; node++) {
        CUgraphNode added;
        const CUgraphNode *before = node ? &made.nodes.back() : nullptr;
        MUST(cuGraphAddKernelNode(&added, made.graph, before, node ? 1 : 0, &parameters.node));
        made.nodes.push_back(added);
    }
    if (instantiate) MUST(cuGraphInstantiate(&made.executable, made.graph, 0));
    return made;
}

static void destroy(Straight &made) {
    if (made.executable) MUST(cuGraphExecDestroy(made.executable));
    MUST(cuGraphDestroy(made.graph));
}

static void set(const Straight &of, size_t node, Word value) {
    const Parameters parameters(value);
    MUST(cuGraphExecKernelNodeSetParams(of.executable, of.nodes[node], &parameters.node));
}

static void one(Word value) {
    Block block = {sum, value};
    size_t size = sizeof block;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    MUST(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, extra));
}

static Word sum_now() {
    Word value;
    MUST(cuMemcpyDtoH(&value, sum, sizeof value));
    return value;
}

struct Times {
    std::vector<double> submit, whole;
};

// us for each kernel, over some 12,800 of them.
template <typename Round> static void measure(Times &times, int count, Round round) {
    const int rounds = 12800 / count;
    const double begun = now_us();
    for (int turn = 0; turn < rounds; turn++) round(turn);
    times.submit.push_back((now_us() - begun) / (rounds * count));
    MUST(cuStreamSynchronize(stream));
    times.whole.push_back((now_us() - begun) / (rounds * count));
}

static void compare(int count) {
    Straight first = straight(count), second = straight(count);
    for (const Straight *graph : {&first, &second}) MUST(cuGraphLaunch(graph->executable, stream));
    MUST(cuStreamSynchronize(stream));
    const char *names[] = {"one by one",  "launch only", "each node set", "each eighth set", "each set, two in turns",
                           "whole update"};
    Times times[6];
    for (int turn = 0; turn < 5; turn++) {
        measure(times[0], count, [&](int) {
            for (int node = 0; node < count; node++) one(1);
        });
        measure(times[1], count, [&](int) { MUST(cuGraphLaunch(first.executable, stream)); });
        measure(times[2], count, [&](int round) {
            for (int node = 0; node < count; node++) set(first, node, round & 1);
            MUST(cuGraphLaunch(first.executable, stream));
        });
        measure(times[3], count, [&](int round) {
            for (int node = 0; node < count; node += 8) set(first, node, round & 1);
            MUST(cuGraphLaunch(first.executable, stream));
        });
        measure(times[4], count, [&](int round) {
            const Straight &graph = round & 1 ? second : first;
            for (int node = 0; node < count; node++) set(graph, node, round & 1);
            MUST(cuGraphLaunch(graph.executable, stream));
        });
        measure(times[5], count, [&](int) {
            CUgraphExecUpdateResultInfo info;
            MUST(cuGraphExecUpdate(first.executable, first.graph, &info));
            MUST(cuGraphLaunch(first.executable, stream));
        });
    }
    std::string list;
    const double alone = median(times[0].whole);
    for (int way = 0; way < 6; way++) {
        const double us = median(times[way].whole), submit = median(times[way].submit);
        printf("%d nodes, %s: submit %.3f, with the end %.3f us a kernel\n", count, names[way], submit, us);
        if (way > 0 && way != 4)
            list += text("%s%s %.2f (%.2fx, host %.2f)", list.empty() ? "" : "; ", names[way], us, alone / us, submit);
    }
    row(2, text("%d nodes: us a kernel, one by one", count), text("%.2f us", alone), list);
    destroy(first);
    destroy(second);
}

static void cost(int count) {
    constexpr int GRAPHS = 200;
    std::vector<double> build, instantiate, first_launch, set_one;
    std::vector<Straight> made;
    const size_t before = free_bytes();
    for (int graph = 0; graph < GRAPHS; graph++) {
        build.push_back(took_us([&] { made.push_back(straight(count, false)); }));
        instantiate.push_back(
            took_us([&] { MUST(cuGraphInstantiate(&made.back().executable, made.back().graph, 0)); }));
    }
    const size_t instantiated = free_bytes();
    for (Straight &graph : made) {
        first_launch.push_back(took_us([&] { MUST(cuGraphLaunch(graph.executable, stream)); }));
        MUST(cuStreamSynchronize(stream));
    }
    const size_t launched = free_bytes();
    for (Straight &graph : made) set_one.push_back(took_us([&] { set(graph, count / 2, 5); }));
    for (Straight &graph : made) destroy(graph);
    const auto kib = [](size_t more, size_t less) { return (double(more) - double(less)) / KIB / GRAPHS; };
    row(2, text("%d nodes: device memory of a graph", count), text("%.1f KiB", kib(before, launched)),
        text("of %d; %.1f before launching, %.1f stay; build %.0f, instantiate %.0f, launch %.0f, set %.2f us", GRAPHS,
             kib(before, instantiated), kib(before, free_bytes()), median(build), median(instantiate),
             median(first_launch), median(set_one)));
}

// Whether what is queued keeps its parameters, and whether setting or launching waits for what runs.
static void while_it_runs() {
    constexpr int NODES = 32, ROUNDS = 50;
    Straight graph = straight(NODES);
    MUST(cuMemsetD8(sum, 0, sizeof(Word)));
    Word expected = 0;
    std::vector<double> sets, launches;
    for (Word round = 1; round <= ROUNDS; round++) {
        launch(spin, stream, 1, 1, Word{2000000});
        for (Word again = 0; again < 4; again++) {
            const Word value = round * 1000 + again;
            sets.push_back(took_us([&] {
                               for (int node = 0; node < NODES; node++) set(graph, node, value);
                           }) /
                           NODES);
            launches.push_back(took_us([&] { MUST(cuGraphLaunch(graph.executable, stream)); }));
            expected += value * NODES;
        }
        MUST(cuStreamSynchronize(stream));
    }
    const Word found = sum_now();
    row(2, "set and launched 4 times behind a running kernel", found == expected ? "right" : "WRONG",
        text("SetParams %.2f us (p99 %.1f), launch %.1f us (p99 %.1f)", median(sets), at(sets, 0.99), median(launches),
             at(launches, 0.99)));
    // Another function in the same place.
    const Parameters other(1, subtract);
    const CUresult result = cuGraphExecKernelNodeSetParams(graph.executable, graph.nodes[3], &other.node);
    MUST(cuMemsetD8(sum, 0, sizeof(Word)));
    for (int node = 0; node < NODES; node++)
        if (node != 3) set(graph, node, 1);
    MUST(cuGraphLaunch(graph.executable, stream));
    MUST(cuStreamSynchronize(stream));
    row(2, "another function given to a node", name(result),
        sum_now() == NODES - 2 ? "and it took effect" : "without effect");
    destroy(graph);
}

int main() {
    open_device();
    const CUmodule module = load_kernels();
    add = kernel(module, "add"), subtract = kernel(module, "subtract"), spin = kernel(module, "spin");
    stream = new_stream();
    MUST(cuMemAlloc(&sum, sizeof(Word)));
    MUST(cuMemsetD8(sum, 0, sizeof(Word)));
    for (int turn = 0; turn < 100; turn++) one(1);
    launch(spin, stream, 1, 1, Word{1000});
    launch(subtract, stream, 1, 1, sum, Word{1});
    MUST(cuStreamSynchronize(stream));
    while_it_runs();
    for (const int count : {8, 32, 128}) compare(count);
    for (const int count : {8, 32, 128}) cost(count);
    return 0;
}
