// What a program may do beside an endless kernel of its own without holding up its neighbours. `attack_beside CASE` has an endless
// kernel, does what CASE names, and leaves; `attack_beside neighbour SECONDS` tells how long the longest of its short kernels took
// meanwhile; `attack_beside cases` names them. `attack_beside fills SECONDS [AFTER]` has an endless kernel that takes all of the device, for
// so long at most, after so many seconds; `attack_beside behind SECONDS` launches on three streams after so long, and `attack_beside allocates SECONDS`
// allocates then: both tell how long they waited. `attack_beside rests SECONDS` ends then.
#include "program.h"

#include <algorithm>
#include <chrono>
#include <cooperative_groups.h>
#include <thread>
#include <vector>

__global__ void endless(volatile unsigned *at) {
    while (at[threadIdx.x % 32] == 0) {}
}

__global__ void brief(unsigned *at) { at[threadIdx.x] += 1; }

template <int bytes> __global__ void local(unsigned *at, int by) {
    unsigned char array[bytes];
    for (int i = 0; i < bytes; i++) array[i] = i * by;
    at[threadIdx.x] = array[(threadIdx.x * by) % bytes];
}

__global__ void together(unsigned *at) {
    cooperative_groups::this_grid().sync();
    at[threadIdx.x] += 1;
}

__global__ void shared(unsigned *at) {
    extern __shared__ unsigned array[];
    array[threadIdx.x] = at[threadIdx.x];
    __syncthreads();
    at[threadIdx.x] = array[31 - threadIdx.x];
}

__global__ void prints() { printf("%d\n", threadIdx.x); }

__global__ void reads(cudaTextureObject_t texture, float *at) { at[threadIdx.x] = tex1Dfetch<float>(texture, threadIdx.x); }

using Clock = std::chrono::steady_clock;
static double since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

static cudaStream_t stream;
static unsigned *at;

template <int bytes> static void launch_local() {
    local<bytes><<<1, 32, 0, stream>>>(at, 3);
    CHECK(cudaGetLastError());
}

struct Case {
    const char *name;
    void (*run)();
};

static const Case cases[] = {
    {"local", [] { launch_local<2000>(); launch_local<20000>(); launch_local<40000>(); }},
    {"local_graph", [] {
        cudaGraph_t graph;
        cudaGraphExec_t executable;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        launch_local<20000>();
        launch_local<40000>();
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
        CHECK(cudaGraphLaunch(executable, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaGraphExecDestroy(executable));
        CHECK(cudaGraphDestroy(graph));
    }},
    {"cooperative", [] {
        void *arguments[] = {&at};
        CHECK(cudaLaunchCooperativeKernel(together, 2, 32, arguments, 0, stream));
    }},
    {"clusters", [] {
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = 2;
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        cudaLaunchConfig_t launch = {};
        launch.gridDim = 4;
        launch.blockDim = 32;
        launch.stream = stream;
        launch.attrs = &attribute;
        launch.numAttrs = 1;
        CHECK(cudaLaunchKernelEx(&launch, brief, at));
    }},
    {"shared", [] {
        CHECK(cudaFuncSetAttribute(shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
        shared<<<1, 32, 200 << 10, stream>>>(at);
        CHECK(cudaGetLastError());
    }},
    {"prints", [] {
        prints<<<1, 32, 0, stream>>>();
        CHECK(cudaGetLastError());
    }},
    {"streams", [] {
        for (int i = 0; i < 20; i++) {
            cudaStream_t more;
            CHECK(cudaStreamCreateWithPriority(&more, cudaStreamNonBlocking, -i % 4));
            brief<<<1, 32, 0, more>>>(at);
            CHECK(cudaStreamDestroy(more));
        }
    }},
    {"events", [] {
        for (int i = 0; i < 100; i++) {
            cudaEvent_t event;
            CHECK(cudaEventCreate(&event));
            CHECK(cudaEventRecord(event, stream));
            CHECK(cudaStreamWaitEvent(stream, event, 0));
            CHECK(cudaEventDestroy(event));
        }
    }},
    {"memory", [] {
        for (size_t bytes = 1 << 10; bytes <= size_t(4) << 30; bytes *= 8) {
            void *memory, *later;
            CHECK(cudaMalloc(&memory, bytes));
            CHECK(cudaMallocAsync(&later, bytes, stream));
            CHECK(cudaMemsetAsync(memory, 1, bytes, stream));
            CHECK(cudaMemcpyAsync(later, memory, bytes, cudaMemcpyDeviceToDevice, stream));
            CHECK(cudaFreeAsync(later, stream));
            CHECK(cudaStreamSynchronize(stream));
        }
    }},
    {"host_memory", [] {
        const size_t bytes = 256 << 20;
        std::vector<char> pageable(bytes);
        void *memory, *pinned;
        CHECK(cudaMalloc(&memory, bytes));
        CHECK(cudaMallocHost(&pinned, bytes));
        CHECK(cudaMemcpyAsync(memory, pageable.data(), bytes, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemcpyAsync(pinned, memory, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaMemcpyAsync(pageable.data(), memory, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
    }},
    {"textures", [] {
        float *memory;
        CHECK(cudaMalloc(&memory, 4096));
        cudaResourceDesc resource = {};
        resource.resType = cudaResourceTypeLinear;
        resource.res.linear.devPtr = memory;
        resource.res.linear.sizeInBytes = 4096;
        resource.res.linear.desc = cudaCreateChannelDesc<float>();
        cudaTextureDesc description = {};
        description.readMode = cudaReadModeElementType;
        cudaTextureObject_t texture;
        CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
        reads<<<1, 32, 0, stream>>>(texture, memory);
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaDestroyTextureObject(texture));
        cudaArray_t array;
        const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
        CHECK(cudaMallocArray(&array, &format, 1024, 1024));
        CHECK(cudaFreeArray(array));
    }},
    {"managed", [] {
        unsigned *managed;
        CHECK(cudaMallocManaged(&managed, 1 << 20));
        brief<<<1, 32, 0, stream>>>(managed);
        CHECK(cudaGetLastError());
    }},
    {"frees", [] {
        void *memory;
        CHECK(cudaMalloc(&memory, 1 << 30));
        CHECK(cudaFree(memory));
    }},
    {"waits", [] { CHECK(cudaDeviceSynchronize()); }},
};

static int neighbour(double seconds) {
    const Clock::time_point begun = Clock::now();
    double longest = 0;
    long count = 0;
    for (; since(begun) < seconds; count++) {
        const Clock::time_point launched = Clock::now();
        brief<<<1, 32>>>(at);
        CHECK(cudaDeviceSynchronize());
        longest = std::max(longest, since(launched));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Program::pass("%ld kernels, the longest took %.3f s", count, longest);
}

static void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

static double after;

static int fills(double seconds) {
    sleep_for(after);
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    endless<<<device.multiProcessorCount * 8, 1024, 0, stream>>>(at);
    CHECK(cudaGetLastError());
    const Clock::time_point begun = Clock::now();
    cudaError_t now = cudaErrorNotReady;
    while (now == cudaErrorNotReady && since(begun) < seconds) {
        sleep_for(0.01);
        now = cudaStreamQuery(stream);
    }
    Program::pass("after %.3f s: %s", since(begun), cudaGetErrorName(now));
    std::_Exit(0);
}

static int behind(double seconds) {
    cudaStream_t streams[3];
    for (cudaStream_t &one : streams) CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    sleep_for(seconds);
    const Clock::time_point begun = Clock::now();
    for (cudaStream_t one : streams) brief<<<1, 32, 0, one>>>(at);
    for (cudaStream_t one : streams) CHECK(cudaStreamSynchronize(one));
    return Program::pass("%.3f s", since(begun));
}

static int rests(double seconds) {
    sleep_for(seconds);
    return Program::pass("%.3f s", seconds);
}

static int allocates(double seconds) {
    sleep_for(seconds);
    const Clock::time_point begun = Clock::now();
    void *memory;
    CHECK(cudaMalloc(&memory, 256 << 20));
    CHECK(cudaFree(memory));
    return Program::pass("%.3f s", since(begun));
}

int main(int argc, char **argv) {
    const Program program("attack_beside", argc, argv);
    const char *const name = argc > 1 ? argv[1] : "local";
    if (std::strcmp(name, "cases") == 0) {
        for (const Case &one : cases) std::printf("%s\n", one.name);
        return 0;
    }
    CHECK(cudaMalloc(&at, 1024));
    CHECK(cudaMemset(at, 0, 1024));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    brief<<<1, 32, 0, stream>>>(at + 128);
    CHECK(cudaDeviceSynchronize());
    struct Role {
        const char *name;
        int (*run)(double seconds);
    };
    const Role roles[] = {{"neighbour", neighbour}, {"fills", fills}, {"behind", behind}, {"allocates", allocates}, {"rests", rests}};
    after = argc > 3 ? std::atof(argv[3]) : 0;
    for (const Role &role : roles) {
        if (argc > 2 && std::strcmp(name, role.name) == 0) return role.run(std::atof(argv[2]));
    }
    const Case *const found =
        std::find_if(std::begin(cases), std::end(cases), [&](const Case &one) { return std::strcmp(one.name, name) == 0; });
    if (found == std::end(cases)) Program::fail("no case %s", name);
    cudaStream_t one;
    CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    endless<<<1, 32, 0, one>>>(at);
    CHECK(cudaGetLastError());
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const Clock::time_point begun = Clock::now();
    // Some cases wait for the endless kernel, as they would natively.
    std::thread([&] {
        found->run();
        std::printf("%s: done after %.3f s\n", found->name, since(begun));
        std::fflush(stdout);
    }).detach();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    Program::pass("%s", found->name);
    std::_Exit(0);
}
