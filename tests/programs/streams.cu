// Streams and events: a pipeline of asynchronous copies and kernels that may overlap, then an order that only
// events between streams can give.
#include "program.h"

#include <vector>

constexpr int STREAMS = 3;

__global__ void triple_plus(const unsigned *in, unsigned *out, unsigned plus, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 3u * in[i] + plus;
}

__global__ void add_from(unsigned *to, const unsigned *from) { *to += *from; }

__global__ void multiply(unsigned *values, unsigned factor, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= factor;
}

__global__ void add(unsigned *values, unsigned term, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += term;
}

// Every stream copies in, computes and copies out its chunks; streams may overlap.
static float pipeline(int chunk, int chunks) {
    const int n = chunk * chunks;
    unsigned *in, *out, *device_in, *device_out;
    CHECK(cudaMallocHost(&in, n * sizeof(unsigned)));
    CHECK(cudaMallocHost(&out, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_in, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_out, n * sizeof(unsigned)));
    for (int i = 0; i < n; i++) {
        in[i] = hash(i);
        out[i] = 0;
    }

    cudaStream_t streams[STREAMS];
    cudaEvent_t start, stop, done[STREAMS];
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    for (int s = 0; s < STREAMS; s++) {
        CHECK(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&done[s], cudaEventDisableTiming));
    }
    CHECK(cudaEventRecord(start, streams[0]));
    for (int c = 0; c < chunks; c++) {
        const cudaStream_t stream = streams[c % STREAMS];
        const int at = c * chunk;
        const size_t bytes = chunk * sizeof(unsigned);
        CHECK(cudaMemcpyAsync(device_in + at, in + at, bytes, cudaMemcpyHostToDevice, stream));
        triple_plus<<<(chunk + 255) / 256, 256, 0, stream>>>(device_in + at, device_out + at, c, chunk);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(out + at, device_out + at, bytes, cudaMemcpyDeviceToHost, stream));
    }
    for (int s = 1; s < STREAMS; s++) {
        CHECK(cudaEventRecord(done[s], streams[s]));
        CHECK(cudaStreamWaitEvent(streams[0], done[s], 0));
    }
    CHECK(cudaEventRecord(stop, streams[0]));
    CHECK(cudaEventSynchronize(stop));

    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    if (milliseconds < 0) Program::fail("the pipeline took %g ms", milliseconds);
    for (int s = 0; s < STREAMS; s++) {
        // All of them have been waited for through `stop`.
        CHECK(cudaEventQuery(s == 0 ? stop : done[s]));
        CHECK(cudaStreamQuery(streams[s]));
    }
    for (int i = 0; i < n; i++) {
        const unsigned expected = 3u * in[i] + i / chunk;
        if (out[i] != expected) Program::fail("pipeline[%d] = %u, not %u", i, out[i], expected);
    }

    for (int s = 0; s < STREAMS; s++) {
        CHECK(cudaEventDestroy(done[s]));
        CHECK(cudaStreamDestroy(streams[s]));
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    CHECK(cudaFreeHost(in));
    CHECK(cudaFreeHost(out));
    return milliseconds;
}

// A copy from ordinary memory is done when its call returns, also for streams that do not wait for the default stream.
static void unordered(int rounds) {
    unsigned *value, *seen, told;
    CHECK(cudaMalloc(&value, sizeof *value));
    CHECK(cudaMalloc(&seen, sizeof *seen));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int round = 1; round <= rounds; round++) {
        const unsigned now = round;
        CHECK(cudaMemcpy(value, &now, sizeof now, cudaMemcpyHostToDevice));
        CHECK(cudaMemsetAsync(seen, 0, sizeof *seen, stream));
        add_from<<<1, 1, 0, stream>>>(seen, value);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(&told, seen, sizeof told, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        if (told != now) Program::fail("a kernel behind a copy reads %u, not %u", told, now);
    }
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(value));
    CHECK(cudaFree(seen));
}

// Two streams take turns on the same words; additions and multiplications do not commute, so a wrong order shows.
static void turns(int n, int rounds) {
    unsigned *values, *device_values;
    CHECK(cudaMallocHost(&values, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&device_values, n * sizeof(unsigned)));
    cudaStream_t adder, multiplier;
    cudaEvent_t added, multiplied;
    CHECK(cudaStreamCreate(&adder));
    CHECK(cudaStreamCreate(&multiplier));
    CHECK(cudaEventCreateWithFlags(&added, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&multiplied, cudaEventDisableTiming));

    for (int i = 0; i < n; i++) values[i] = i;
    CHECK(cudaMemcpyAsync(device_values, values, n * sizeof(unsigned), cudaMemcpyHostToDevice, adder));
    unsigned factor_of_all = 1, term_of_all = 0;
    for (int round = 0; round < rounds; round++) {
        const unsigned term = round + 1, factor = 2 * round + 3;
        add<<<(n + 127) / 128, 128, 0, adder>>>(device_values, term, n);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(added, adder));
        CHECK(cudaStreamWaitEvent(multiplier, added, 0));
        multiply<<<(n + 127) / 128, 128, 0, multiplier>>>(device_values, factor, n);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(multiplied, multiplier));
        CHECK(cudaStreamWaitEvent(adder, multiplied, 0));
        term_of_all = (term_of_all + term) * factor;
        factor_of_all *= factor;
    }
    CHECK(cudaMemcpyAsync(values, device_values, n * sizeof(unsigned), cudaMemcpyDeviceToHost, adder));
    CHECK(cudaStreamSynchronize(adder));
    for (int i = 0; i < n; i++) {
        const unsigned expected = i * factor_of_all + term_of_all;
        if (values[i] != expected) Program::fail("turns[%d] = %u, not %u", i, values[i], expected);
    }

    // The default stream waits for streams made without cudaStreamNonBlocking, and they for it.
    add<<<(n + 127) / 128, 128, 0, adder>>>(device_values, 5, n);
    multiply<<<(n + 127) / 128, 128>>>(device_values, 7, n);
    add<<<(n + 127) / 128, 128, 0, multiplier>>>(device_values, 11, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(values, device_values, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        const unsigned expected = (i * factor_of_all + term_of_all + 5) * 7 + 11;
        if (values[i] != expected) Program::fail("default stream: %d: %u, not %u", i, values[i], expected);
    }

    CHECK(cudaEventDestroy(added));
    CHECK(cudaEventDestroy(multiplied));
    CHECK(cudaStreamDestroy(adder));
    CHECK(cudaStreamDestroy(multiplier));
    CHECK(cudaFree(device_values));
    CHECK(cudaFreeHost(values));
}

int main(int argc, char **argv) {
    const Program program("streams", argc, argv);
    const int chunk = program.large ? 1 << 20 : 10007, chunks = program.large ? 24 : 10;
    const float milliseconds = pipeline(chunk, chunks);
    turns(program.large ? 1 << 16 : 1500, program.large ? 200 : 20);
    unordered(program.large ? 2000 : 200);
    return Program::pass("%d chunks of %d words on %d streams in %.3f ms", chunks, chunk, STREAMS, milliseconds);
}
