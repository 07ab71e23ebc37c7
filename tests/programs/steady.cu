// Steps of work as frameworks do them, over and over: attributes that are set before each launch, occupancy, copies from and to
// pinned and pageable memory, several streams, events, memory of a pool, a graph that is launched and changed. After the first
// ones a step needs nothing of the kernel. `steady STEPS`
#include "program.h"

#include <vector>

__global__ void add(float *data, int n, float value) {
    extern __shared__ float shared[];
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    shared[threadIdx.x] = value;
    __syncthreads();
    if (at < n) data[at] += shared[threadIdx.x];
}

int main(int argc, char **argv) {
    Program program("steady", argc, argv);
    const int steps = argc > 1 ? atoi(argv[1]) : 10, n = 1 << 12, large = 64 << 10;
    cudaStream_t one, two;
    CHECK(cudaStreamCreate(&one));
    CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    cudaEvent_t ready, done;
    CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    CHECK(cudaEventCreate(&done));
    float *data, *pinned;
    CHECK(cudaMalloc(&data, n * sizeof(float)));
    CHECK(cudaMallocHost(&pinned, n * sizeof(float)));
    std::vector<float> pageable(n, 0.0f);
    CHECK(cudaMemcpy(data, pageable.data(), n * sizeof(float), cudaMemcpyHostToDevice));

    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    for (int part = 0; part < 4; part++) add<<<n / 256, 256, 1024, one>>>(data, n, 1.0f);
    CHECK(cudaStreamEndCapture(one, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    std::vector<cudaGraphNode_t> nodes(4);
    size_t count = nodes.size();
    CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));

    for (int step = 0; step < steps; step++) {
        // As attention kernels are launched: what they need is set each time.
        CHECK(cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, large));
        CHECK(cudaFuncSetAttribute(add, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
        cudaFuncAttributes attributes;
        CHECK(cudaFuncGetAttributes(&attributes, add));
        int blocks;
        CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, large));
        add<<<n / 256, 256, large, one>>>(data, n, 1.0f);
        // A smaller launch takes back nothing that the next step would have to ask for.
        CHECK(cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024));
        CHECK(cudaEventRecord(ready, one));
        CHECK(cudaStreamWaitEvent(two, ready, 0));
        add<<<n / 256, 256, 1024, two>>>(data, n, 1.0f);
        float *some;
        CHECK(cudaMallocAsync(&some, n * sizeof(float), two));
        CHECK(cudaMemsetAsync(some, 0, n * sizeof(float), two));
        CHECK(cudaMemcpyAsync(some, data, n * sizeof(float), cudaMemcpyDeviceToDevice, two));
        CHECK(cudaMemcpyAsync(pinned, some, n * sizeof(float), cudaMemcpyDeviceToHost, two));
        CHECK(cudaFreeAsync(some, two));
        CHECK(cudaEventRecord(done, two));
        CHECK(cudaEventSynchronize(done));
        CHECK(cudaStreamWaitEvent(one, done, 0));
        cudaKernelNodeParams changed;
        CHECK(cudaGraphKernelNodeGetParams(nodes[0], &changed));
        float value = static_cast<float>(step % 3);
        int elements = n;
        void *arguments[] = {&data, &elements, &value};
        changed.kernelParams = arguments;
        CHECK(cudaGraphExecKernelNodeSetParams(executable, nodes[0], &changed));
        CHECK(cudaGraphLaunch(executable, one));
        CHECK(cudaMemcpyAsync(pageable.data(), data, n * sizeof(float), cudaMemcpyDeviceToHost, one));
        CHECK(cudaStreamSynchronize(one));
        cudaPointerAttributes where;
        CHECK(cudaPointerGetAttributes(&where, data));
        if (cudaStreamQuery(two) != cudaSuccess || where.type != cudaMemoryTypeDevice) Program::fail("step %d", step);
    }
    float expected = 0;
    for (int step = 0; step < steps; step++) expected += 5.0f + static_cast<float>(step % 3);
    for (int at = 0; at < n; at++) {
        if (pageable[at] != expected) Program::fail("%d is %f, expected %f", at, pageable[at], expected);
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(data));
    return Program::pass("%d steps", steps);
}
