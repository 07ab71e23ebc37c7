// Graphs of any shape, of kernels, fills and copies: built by hand, launched into several streams, changed between two launches
// and destroyed while they run. What they leave is held against what the same steps leave when the host does them in order.
#include "program.h"

#include <memory>
#include <vector>

static const int WORDS = 48;
static const int COPY = 0, FILL = 1, KERNEL = 2;

__global__ void mix(unsigned *words, int to, int first, int second, unsigned salt, unsigned spin) {
    unsigned value = words[first] * 3 + words[second] + salt;
    for (unsigned turn = 0; turn < spin; turn++) value = value * 1664525u + 1013904223u;
    words[to] = value;
}

struct Step {
    int kind, to, first, second;
    unsigned salt, spin;

    void run(std::vector<unsigned> &words) const {
        if (kind == COPY) {
            words[to] = words[first];
        } else if (kind == FILL) {
            words[to] = salt;
        } else {
            unsigned value = words[first] * 3 + words[second] + salt;
            for (unsigned turn = 0; turn < spin; turn++) value = value * 1664525u + 1013904223u;
            words[to] = value;
        }
    }
};

class Random {
public:
    explicit Random(unsigned seed) : state(seed) {}
    unsigned below(unsigned most) { return hash(state++) % most; }

private:
    unsigned state;
};

class Shape {
public:
    Shape(unsigned *words, Random &random, int count) : words(words) {
        for (int i = 0; i < count; i++) {
            Step step;
            step.kind = static_cast<int>(random.below(5));
            if (step.kind > KERNEL) step.kind = KERNEL;
            step.to = static_cast<int>(random.below(WORDS));
            // A copy has two places.
            step.first = (step.to + 1 + static_cast<int>(random.below(WORDS - 1))) % WORDS;
            step.second = static_cast<int>(random.below(WORDS));
            step.salt = random.below(1000000);
            step.spin = random.below(40);
            steps.push_back(step);
        }
    }

    // A graph whose nodes wait for no more than they have to.
    cudaGraph_t graph() {
        cudaGraph_t graph;
        CHECK(cudaGraphCreate(&graph, 0));
        nodes.assign(steps.size(), nullptr);
        for (size_t i = 0; i < steps.size(); i++) {
            std::vector<cudaGraphNode_t> before;
            for (size_t j = 0; j < i; j++) {
                const Step &a = steps[j], &b = steps[i];
                const bool reads = a.to == b.first || a.to == b.second, overwrites = b.to == a.first || b.to == a.second;
                if (reads || overwrites || a.to == b.to) before.push_back(nodes[j]);
            }
            add(graph, i, before);
        }
        return graph;
    }

    void add(cudaGraph_t graph, size_t i, const std::vector<cudaGraphNode_t> &before) {
        Step &step = steps[i];
        if (step.kind == COPY) {
            CHECK(cudaGraphAddMemcpyNode1D(&nodes[i], graph, before.data(), before.size(), words + step.to,
                                           words + step.first, 4, cudaMemcpyDeviceToDevice));
        } else if (step.kind == FILL) {
            cudaMemsetParams parameters = fill(step);
            CHECK(cudaGraphAddMemsetNode(&nodes[i], graph, before.data(), before.size(), &parameters));
        } else {
            with_kernel(step, [&](cudaKernelNodeParams *parameters) {
                CHECK(cudaGraphAddKernelNode(&nodes[i], graph, before.data(), before.size(), parameters));
            });
        }
    }

    cudaMemsetParams fill(const Step &step) {
        cudaMemsetParams parameters = {};
        parameters.dst = words + step.to;
        parameters.value = step.salt;
        parameters.elementSize = 4;
        parameters.width = 1;
        parameters.height = 1;
        return parameters;
    }

    template <typename Then> void with_kernel(Step &step, Then then) {
        void *arguments[] = {&words, &step.to, &step.first, &step.second, &step.salt, &step.spin};
        cudaKernelNodeParams parameters = {};
        parameters.func = reinterpret_cast<void *>(mix);
        parameters.gridDim = dim3(1);
        parameters.blockDim = dim3(1);
        parameters.kernelParams = arguments;
        then(&parameters);
    }

    // Has one node of the executable graph do something else, in the same places.
    void change(cudaGraphExec_t exec, Random &random) {
        const size_t i = random.below(static_cast<unsigned>(steps.size()));
        Step &step = steps[i];
        step.salt = random.below(1000000);
        if (step.kind == FILL) {
            cudaMemsetParams parameters = fill(step);
            CHECK(cudaGraphExecMemsetNodeSetParams(exec, nodes[i], &parameters));
        } else if (step.kind == KERNEL) {
            with_kernel(step, [&](cudaKernelNodeParams *parameters) {
                CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes[i], parameters));
            });
        }
    }

    void run(std::vector<unsigned> &on) const {
        for (const Step &step : steps) step.run(on);
    }

    std::vector<Step> steps;

private:
    unsigned *words;
    std::vector<cudaGraphNode_t> nodes;
};

int main(int argc, char **argv) {
    const Program program("graph_shapes", argc, argv);
    const int rounds = program.large ? 60 : 12;
    unsigned *words;
    CHECK(cudaMalloc(&words, WORDS * sizeof(unsigned)));
    cudaStream_t streams[3];
    for (cudaStream_t &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::vector<unsigned> expected(WORDS), found(WORDS);
    int launches = 0;
    for (int round = 0; round < rounds; round++) {
        Random random(1000 * round + 1);
        for (int i = 0; i < WORDS; i++) expected[i] = hash(i + round);
        CHECK(cudaMemcpy(words, expected.data(), WORDS * sizeof(unsigned), cudaMemcpyHostToDevice));
        Shape shape(words, random, 1 + static_cast<int>(random.below(program.large ? 400 : 40)));
        cudaGraph_t graph = shape.graph();
        cudaGraphExec_t exec;
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        // Launches of one executable graph come one after the other, whatever streams they are launched into.
        for (int launch = 0; launch < 12; launch++, launches++) {
            CHECK(cudaGraphLaunch(exec, streams[random.below(3)]));
            shape.run(expected);
            if (random.below(2) == 0) {
                for (int changes = 0; changes < 3; changes++) shape.change(exec, random);
            } else if (random.below(3) == 0) {
                for (Step &step : shape.steps) step.salt += 1;
                // Nodes of an executable graph are named as those of the graph that it was made of.
                Shape other = shape;
                cudaGraph_t changed = other.graph();
                cudaGraphExecUpdateResultInfo result;
                CHECK(cudaGraphExecUpdate(exec, changed, &result));
                CHECK(cudaGraphDestroy(changed));
            }
        }
        // It may be destroyed while it runs.
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(found.data(), words, WORDS * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (int i = 0; i < WORDS; i++) {
            if (found[i] != expected[i]) Program::fail("round %d: words[%d] = %u, not %u", round, i, found[i], expected[i]);
        }
    }
    for (cudaStream_t &stream : streams) CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(words));
    return Program::pass("%d graphs, %d launches", rounds, launches);
}
