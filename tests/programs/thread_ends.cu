// A thread-local object whose destructor calls the driver when what the library keeps for the thread is gone already, as
// PyTorch's pools of handles do.
// nvcc: --default-stream per-thread
#include "program.h"

#include <cuda.h>

#include <thread>

static CUresult (*pushCurrent)(CUcontext);
static CUresult (*popCurrent)(CUcontext *);
static CUresult (*getCurrent)(CUcontext *);

__global__ void fill(int *values, int value, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = value + i;
}

static int failed = 0, destroyed = 0, found = -1;

#define EXPECT(call)                                                                                                  \
    if (int error = static_cast<int>(call)) {                                                                         \
        std::fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, error);                                            \
        failed++;                                                                                                     \
    }

// What destructors of the usual libraries do.
static void last_calls(int *values, cudaStream_t stream, cudaEvent_t event) {
    const int n = 1000;
    int last = 0;
    EXPECT(cudaMemset(values, 0, n * sizeof(int)));
    fill<<<4, 256>>>(values, 5, n);
    EXPECT(cudaGetLastError());
    EXPECT(cudaEventRecord(event, cudaStreamPerThread));
    EXPECT(cudaStreamWaitEvent(stream, event));
    EXPECT(cudaMemcpyAsync(&last, values + n - 1, sizeof(int), cudaMemcpyDeviceToHost, stream));
    EXPECT(cudaStreamSynchronize(stream));
    EXPECT(cudaEventSynchronize(event));
    found = last;
    CUcontext context;
    EXPECT(getCurrent(&context));
    EXPECT(pushCurrent(context));
    EXPECT(pushCurrent(context));
    EXPECT(popCurrent(&context));
    EXPECT(popCurrent(&context));
    // A mistake is told as one.
    if (cudaEventQuery(reinterpret_cast<cudaEvent_t>(0x123)) == cudaSuccess) failed++;
    cudaGetLastError();
    int *more;
    EXPECT(cudaMalloc(&more, 1 << 20));
    EXPECT(cudaFree(more));
    EXPECT(cudaDeviceSynchronize());
    EXPECT(cudaEventDestroy(event));
    EXPECT(cudaStreamDestroy(stream));
    EXPECT(cudaFree(values));
}

struct Pool {
    int *values = nullptr;
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    ~Pool() {
        if (values) last_calls(values, stream, event);
        destroyed++;
    }
};

static thread_local Pool pool;

static void work() {
    // The object is there before the thread's first call, so that it goes after all that calls left with the thread.
    pool.values = nullptr;
    int *values;
    EXPECT(cudaMalloc(&values, 1 << 20));
    EXPECT(cudaStreamCreateWithFlags(&pool.stream, cudaStreamNonBlocking));
    EXPECT(cudaEventCreate(&pool.event));
    CUcontext context;
    EXPECT(getCurrent(&context));
    EXPECT(pushCurrent(context));
    EXPECT(popCurrent(&context));
    fill<<<4, 256>>>(values, 1, 1000);
    EXPECT(cudaStreamSynchronize(cudaStreamPerThread));
    if (cudaEventQuery(reinterpret_cast<cudaEvent_t>(0x123)) == cudaSuccess) failed++;
    cudaGetLastError();
    pool.values = values;
}

template <class Function>
static void find(const char *name, Function &function) {
    cudaDriverEntryPointQueryResult told;
    CHECK(cudaGetDriverEntryPointByVersion(name, reinterpret_cast<void **>(&function), 12000, cudaEnableDefault, &told));
    if (told != cudaDriverEntryPointSuccess) Program::fail("%s is not there", name);
}

int main(int argc, char **argv) {
    const Program program("thread_ends", argc, argv);
    find("cuCtxPushCurrent", pushCurrent);
    find("cuCtxPopCurrent", popCurrent);
    find("cuCtxGetCurrent", getCurrent);
    const int threads = program.large ? 50 : 5;
    for (int thread = 0; thread < threads; thread++) {
        found = -1;
        std::thread(work).join();
        if (failed) Program::fail("%d calls in thread %d", failed, thread);
        if (found != 5 + 999) Program::fail("the last kernel of thread %d: %d", thread, found);
    }
    if (destroyed != threads) Program::fail("%d of %d destructors ran", destroyed, threads);
    return Program::pass("%d threads", threads);
}
