// Copies in batches, between pointers and arrays; objects that graphs keep until their launches are done; and the log, which
// says why a call was refused.
#include "program.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

constexpr int THREADS = 128;

__global__ void add(unsigned *values, unsigned amount, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += amount;
}

static int n;

static void expect(cudaError_t error, cudaError_t expected, const char *what) {
    if (error != expected) Program::fail("%s: %s for %s", what, cudaGetErrorName(error), cudaGetErrorName(expected));
    cudaGetLastError();
}

// Halves change places, by way of the device: one source lives no longer than the call, the other waits for the stream.
static void copies(cudaStream_t stream) {
    const size_t half = n / 2 * sizeof(unsigned);
    unsigned *device, *pinned;
    CHECK(cudaMalloc(&device, 2 * half));
    CHECK(cudaMallocHost(&pinned, 2 * half));
    std::vector<unsigned> plain(n / 2);
    for (int i = 0; i < n / 2; i++) {
        plain[i] = i * 3;
        pinned[i] = i * 5;
    }
    cudaMemcpyAttributes said[2] = {};
    said[0].srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
    said[1].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    size_t firsts[2] = {0, 1};
    void *in[2] = {reinterpret_cast<char *>(device) + half, device};
    const void *from[2] = {plain.data(), pinned};
    const size_t sizes[2] = {half, half};
    CHECK(cudaMemcpyBatchAsync(in, from, sizes, 2, said, firsts, 2, stream));
    std::fill(plain.begin(), plain.end(), 0);
    add<<<(n + THREADS - 1) / THREADS, THREADS, 0, stream>>>(device, 7, n);
    std::vector<unsigned> low(n / 2), high(n / 2);
    void *out[2] = {high.data(), low.data()};
    const void *back[2] = {reinterpret_cast<char *>(device) + half, device};
    CHECK(cudaMemcpyBatchAsync(out, back, sizes, 2, said + 1, firsts, 1, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n / 2; i++) {
        if (low[i] != i * 5u + 7 || high[i] != i * 3u + 7) Program::fail("copies: [%d] is %u, %u", i, low[i], high[i]);
    }
    expect(cudaMemcpyBatchAsync(out, back, sizes, 2, said, firsts, 1, nullptr), cudaErrorInvalidValue, "the legacy stream");
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
}

// A block of rows into an array and out of it.
static void shapes(cudaStream_t stream) {
    constexpr int WIDTH = 24, HEIGHT = 10;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned short>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, WIDTH, HEIGHT));
    std::vector<uint16_t> in(WIDTH * HEIGHT), out(WIDTH * HEIGHT, 0xffff);
    for (size_t i = 0; i < in.size(); i++) in[i] = i * 11;
    cudaMemcpy3DBatchOp there = {}, back = {};
    there.src.type = back.dst.type = cudaMemcpyOperandTypePointer;
    there.dst.type = back.src.type = cudaMemcpyOperandTypeArray;
    there.src.op.ptr.ptr = in.data();
    there.src.op.ptr.rowLength = WIDTH;
    there.dst.op.array.array = back.src.op.array.array = array;
    there.dst.op.array.offset = back.src.op.array.offset = {3, 2, 0};
    back.dst.op.ptr.ptr = out.data();
    there.extent = back.extent = {16, 5, 1};
    there.srcAccessOrder = back.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    CHECK(cudaMemcpy3DBatchAsync(1, &there, 0, stream));
    CHECK(cudaMemcpy3DBatchAsync(1, &back, 0, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int y = 0; y < 5; y++) {
        for (int x = 0; x < 16; x++) {
            if (out[y * 16 + x] != in[y * WIDTH + x]) Program::fail("shapes: %d, %d is %u", x, y, out[y * 16 + x]);
        }
    }
    CHECK(cudaFreeArray(array));
}

static std::atomic<int> ended;

static void end(void *object) {
    delete static_cast<std::string *>(object);
    ended++;
}

static void await(int count) {
    for (int i = 0; i < 5000 && ended < count; i++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (ended != count) Program::fail("objects: %d have ended instead of %d", ended.load(), count);
}

// A graph that a stream writes down keeps an object, as collectives do that are captured.
static void objects(cudaStream_t stream) {
    unsigned *device, value = 0;
    CHECK(cudaMalloc(&device, n * sizeof(unsigned)));
    CHECK(cudaMemsetAsync(device, 0, n * sizeof(unsigned), stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    add<<<(n + THREADS - 1) / THREADS, THREADS, 0, stream>>>(device, 2, n);
    cudaStreamCaptureStatus status;
    cudaGraph_t graph;
    CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
    cudaUserObject_t object;
    CHECK(cudaUserObjectCreate(&object, new std::string("kept"), end, 1, cudaUserObjectNoDestructorSync));
    CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream));
    if (ended != 0) Program::fail("objects: one has ended before its graph");
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaMemcpyAsync(&value, device + n - 1, sizeof value, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (value != 6) Program::fail("objects: three launches added %u", value);
    await(1);
    CHECK(cudaFree(device));
}

static std::string heard;

static void hear(void *, cudaLogLevel, char *message, size_t length) { heard.assign(message, length); }

// What is not there is refused, and the reason is told.
static void refusals() {
    cudaLogsCallbackHandle handle;
    CHECK(cudaLogsRegisterCallback(hear, nullptr, &handle));
    cudaMipmappedArray_t levels = nullptr;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    expect(cudaMallocMipmappedArray(&levels, &format, {16, 16, 0}, 4), cudaErrorNotSupported, "mipmaps");
    if (heard.find("cuMipmappedArrayCreate: ") != 0) Program::fail("refusals: heard \"%s\"", heard.c_str());
    char text[512];
    size_t length = sizeof text;
    CHECK(cudaLogsDumpToMemory(nullptr, text, &length, 0));
    if (std::string(text, length).find(heard) == std::string::npos) Program::fail("refusals: the log is \"%s\"", text);
    CHECK(cudaLogsUnregisterCallback(handle));
}

int main(int argc, char **argv) {
    Program program("batches", argc, argv);
    n = program.large ? 1 << 22 : 1 << 12;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    copies(stream);
    shapes(stream);
    objects(stream);
    refusals();
    CHECK(cudaStreamDestroy(stream));
    return Program::pass("n=%d", n);
}
