// A program that calls cuFFT, of which it has only what comes first in its library path.
//
//   tenant right [MOST]   transforms of many shapes, each compared with sums in double precision on the host: lengths up to
//                         MOST (64), and from 16 on some larger ones
//   tenant calls          what calls answer, mistakes among them
//   tenant streams        the order of streams, graphs, memory that is freed and allocated again
//   tenant hold           makes a plan, and executes it for each line of its input: tells codes
//   tenant forks          what calls answer in children
//   tenant leaves         makes a plan, and ends while a child has its connections: tells the child
//   tenant times          how long transforms take
#include "../include/cufft.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <random>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using Complex = std::complex<double>;
using Sizes = std::vector<int>;

static std::mt19937 generator(7);
static long tried;

#define DIE(...) (std::printf("FAIL "), std::printf(__VA_ARGS__), std::printf("\n"), std::exit(1))
#define CUDA(call)                                                                                     \
    do {                                                                                               \
        const cudaError_t error_ = (call);                                                             \
        if (error_ != cudaSuccess) DIE("%s: %s", #call, cudaGetErrorString(error_));                   \
    } while (0)
#define FFT(call)                                                                                      \
    do {                                                                                               \
        const int code_ = (call);                                                                      \
        if (code_ != CUFFT_SUCCESS) DIE("%s: code %d", #call, code_);                                  \
    } while (0)
#define EXPECT(call, wanted)                                                                           \
    do {                                                                                               \
        const int code_ = (call);                                                                      \
        if (code_ != (wanted)) DIE("%s: code %d, and not %d", #call, code_, (int)(wanted));            \
    } while (0)

static double noise() { return std::uniform_real_distribution<double>(-1, 1)(generator); }

static size_t product(const Sizes &sides) {
    size_t all = 1;
    for (int side : sides) all *= side;
    return all;
}

// The transform of an array, dimension by dimension, term by term.
static void transform(std::vector<Complex> &data, const Sizes &sides, int way) {
    size_t pitch = data.size();
    for (int side : sides) {
        pitch /= side;
        std::vector<Complex> roots(side), line(side);
        for (int k = 0; k < side; k++) roots[k] = std::polar(1.0, way * 2 * M_PI * k / side);
        for (size_t first = 0; first < data.size(); first++) {
            if (first / pitch % side != 0) continue;
            for (int k = 0; k < side; k++) {
                Complex sum = 0;
                for (int j = 0; j < side; j++) sum += data[first + j * pitch] * roots[(size_t)j * k % side];
                line[k] = sum;
            }
            for (int k = 0; k < side; k++) data[first + k * pitch] = line[k];
        }
    }
}

// How one end of a transform lies, in elements.
struct End {
    Sizes counts, embed;
    int stride, distance;

    size_t at(int batch, size_t index) const {
        size_t place = 0, pitch = stride;
        for (size_t d = counts.size(); d-- > 0; index /= counts[d], pitch *= embed[d]) place += index % counts[d] * pitch;
        return (size_t)batch * distance + place;
    }
    size_t extent(int batch) const { return at(batch - 1, product(counts) - 1) + 1; }
};

struct Case {
    cufftType type;
    Sizes sides;
    int batch, way;
    bool in_place, advanced;
    int stride_in, stride_out, more;  // of the advanced layout: strides, and how much longer its arrays are

    bool twice() const { return (type & 0x40) != 0; }
    bool real_in() const { return type == CUFFT_R2C || type == CUFFT_D2Z; }
    bool real_out() const { return type == CUFFT_C2R || type == CUFFT_Z2D; }

    End end(bool real, int stride) const {
        End end = {sides, sides, 1, 0};
        const bool half = !real && (real_in() || real_out());
        const int row = sides.back() / 2 + 1;
        if (half) end.counts.back() = end.embed.back() = row;
        if (!advanced) {
            if (real && in_place) end.embed.back() = 2 * row;
            end.distance = (int)product(end.embed);
            return end;
        }
        for (int &side : end.embed) side += more;
        // In place rows of both ends are of one length.
        if (real && in_place) end.embed.back() = 2 * (row + more);
        end.stride = stride;
        end.distance = (int)(product(end.embed) * stride) + more;
        if (real && in_place) end.distance = 2 * this->end(false, stride).distance;
        return end;
    }

    std::string name() const {
        std::string text = "type " + std::to_string(type) + " sides";
        for (int side : sides) text += " " + std::to_string(side);
        return text + " batch " + std::to_string(batch) + (way < 0 ? " forward" : " back") + (in_place ? " in place" : "") +
               (advanced ? " strides " + std::to_string(stride_in) + " " + std::to_string(stride_out) + " more " + std::to_string(more) : "");
    }
};

static cufftHandle plan_of(const Case &one, const End &in, const End &out) {
    cufftHandle plan;
    Sizes sides = one.sides, embed_in = in.embed, embed_out = out.embed;
    const int rank = (int)sides.size();
    if (one.advanced) {
        FFT(cufftPlanMany(&plan, rank, sides.data(), embed_in.data(), in.stride, in.distance, embed_out.data(), out.stride, out.distance, one.type, one.batch));
    } else if (rank == 1) {
        FFT(cufftPlan1d(&plan, sides[0], one.type, one.batch));
    } else if (rank == 2 && one.batch == 1) {
        FFT(cufftPlan2d(&plan, sides[0], sides[1], one.type));
    } else if (rank == 3 && one.batch == 1) {
        FFT(cufftPlan3d(&plan, sides[0], sides[1], sides[2], one.type));
    } else {
        FFT(cufftPlanMany(&plan, rank, sides.data(), nullptr, 1, 0, nullptr, 1, 0, one.type, one.batch));
    }
    return plan;
}

static int execute(cufftHandle plan, cufftType type, void *from, void *to, int way) {
    switch (type) {
    case CUFFT_C2C: return cufftExecC2C(plan, from, to, way);
    case CUFFT_Z2Z: return cufftExecZ2Z(plan, from, to, way);
    case CUFFT_R2C: return cufftExecR2C(plan, from, to);
    case CUFFT_D2Z: return cufftExecD2Z(plan, from, to);
    case CUFFT_C2R: return cufftExecC2R(plan, from, to);
    default: return cufftExecZ2D(plan, from, to);
    }
}

static const double GAP = 77.5;
static const size_t ROOM = 2 << 20;

template <class T> static void check(const Case &one) {
    tried++;
    const End in = one.end(one.real_in(), one.stride_in), out = one.end(one.real_out(), one.stride_out);
    const int wide_in = one.real_in() ? 1 : 2, wide_out = one.real_out() ? 1 : 2;
    const size_t all = product(one.sides), numbers_in = in.extent(one.batch) * wide_in, numbers_out = out.extent(one.batch) * wide_out;
    std::vector<T> read(numbers_in, (T)GAP), found(std::max(numbers_in, numbers_out), (T)GAP);
    std::vector<std::vector<Complex>> expected;
    for (int b = 0; b < one.batch; b++) {
        std::vector<Complex> data(all);
        for (Complex &value : data) value = one.real_in() || one.real_out() ? Complex(noise(), 0) : Complex(noise(), noise());
        std::vector<Complex> result = data;
        if (one.real_out()) {
            // The spectrum of real numbers, which come back times their count.
            transform(data, one.sides, -1);
            for (Complex &value : result) value *= (double)all;
        } else {
            transform(result, one.sides, one.way);
        }
        const size_t last = one.sides.back(), some = in.counts.back();
        for (size_t index = 0; index < product(in.counts); index++) {
            const Complex value = data[index / some * last + index % some];
            const size_t at = in.at(b, index) * wide_in;
            read[at] = (T)value.real();
            if (wide_in == 2) read[at + 1] = (T)value.imag();
        }
        expected.push_back(result);
    }
    const size_t bytes_in = numbers_in * sizeof(T), bytes_out = numbers_out * sizeof(T);
    // At the very end of an allocation, or somewhere in it.
    static char *rooms[2];
    for (char *&room : rooms) {
        if (room == nullptr) CUDA(cudaMalloc(&room, ROOM));
    }
    const size_t most = std::max(bytes_in, bytes_out);
    if (most > ROOM) DIE("%s: too large", one.name().c_str());
    const size_t left_in = ROOM - (one.in_place ? most : bytes_in), left_out = ROOM - bytes_out;
    char *const from = rooms[0] + (tried % 2 ? left_in / 16 * 16 : tried % 5 * 16);
    char *const to = one.in_place ? from : rooms[1] + (tried % 3 ? left_out / 16 * 16 : tried % 7 * 16);
    CUDA(cudaMemcpy(from, read.data(), bytes_in, cudaMemcpyHostToDevice));
    if (!one.in_place) CUDA(cudaMemcpy(to, found.data(), bytes_out, cudaMemcpyHostToDevice));
    const cufftHandle plan = plan_of(one, in, out);
    const int code = execute(plan, one.type, from, to, one.way);
    if (code != CUFFT_SUCCESS) DIE("%s: code %d", one.name().c_str(), code);
    CUDA(cudaMemcpy(found.data(), to, bytes_out, cudaMemcpyDeviceToHost));
    std::vector<char> is_element(numbers_out);
    double sum = 0, worst = 0;
    for (int b = 0; b < one.batch; b++) {
        const size_t last = one.sides.back(), some = out.counts.back();
        for (size_t index = 0; index < product(out.counts); index++) {
            const Complex wanted = expected[b][index / some * last + index % some];
            const size_t at = out.at(b, index) * wide_out;
            is_element[at] = 1;
            if (wide_out == 2) is_element[at + 1] = 1;
            sum += std::norm(wanted);
            worst = std::max(worst, std::abs(Complex(found[at], wide_out == 2 ? found[at + 1] : 0) - (wide_out == 2 ? wanted : wanted.real())));
        }
    }
    const double scale = std::sqrt(sum / (double)(product(out.counts) * one.batch)), bound = sizeof(T) == 4 ? 2e-6 : 4e-15;
    const double allowed = bound * scale * (4 + std::log2((double)all));
    if (!(worst <= allowed)) DIE("%s: %g apart, more than %g", one.name().c_str(), worst, allowed);
    for (size_t at = 0; at < numbers_out && !one.in_place; at++) {
        if (!is_element[at] && found[at] != (T)GAP) DIE("%s: number %zu between the elements was written", one.name().c_str(), at);
    }
    FFT(cufftDestroy(plan));
}

static void check(const Case &one) { one.twice() ? check<double>(one) : check<float>(one); }

static const cufftType TYPES[] = {CUFFT_C2C, CUFFT_R2C, CUFFT_C2R, CUFFT_Z2Z, CUFFT_D2Z, CUFFT_Z2D};

static int way_of(cufftType type, int turn) {
    if (type == CUFFT_C2C || type == CUFFT_Z2Z) return turn % 2 ? 1 : -1;
    return type == CUFFT_C2R || type == CUFFT_Z2D ? 1 : -1;
}

static void right(int most) {
    int turn = 0;
    auto of = [&](cufftType type, Sizes sides, int batch) {
        for (int in_place = 0; in_place < 2; in_place++, turn++) check({type, sides, batch, way_of(type, turn), in_place != 0, false, 1, 1, 0});
    };
    for (int n = 1; n <= most; n++) {
        for (cufftType type : TYPES) of(type, {n}, 1 + n % 3);
    }
    for (int n : {67, 97, 127, 251, 509}) {
        if (most < 16) break;
        of(TYPES[turn % 6], {n}, 1), of(CUFFT_C2C, {n}, 2);
    }
    for (int bits = 7; bits <= 12 && most >= 16; bits++) of(bits % 2 ? CUFFT_C2C : CUFFT_D2Z, {1 << bits}, 1);
    for (cufftType type : TYPES) {
        of(type, {6, 10}, 1), of(type, {9, 7}, 1), of(type, {5, 8}, 3), of(type, {16, 1}, 2), of(type, {1, 16}, 1);
        of(type, {4, 6, 5}, 1), of(type, {3, 5, 8}, 2), of(type, {2, 1, 7}, 1);
        for (Sizes sides : {Sizes{12}, Sizes{7}, Sizes{4, 6}, Sizes{3, 4, 5}}) {
            for (int more = 0; more < 3; more++, turn++) {
                check({type, sides, 1 + more, way_of(type, turn), false, true, 1 + more, 3 - more, more});
                check({type, sides, 2, way_of(type, turn), true, true, 1 + (more > 1), 1 + (more > 1), 2 * more});
            }
        }
    }
    std::printf("PASS right plans=%ld\n", tried);
}

// All that the library of CUDA 13.0 exports.
static const char *const NAMES[] = {
    "Create", "Destroy", "Plan1d", "Plan2d", "Plan3d", "PlanMany", "MakePlan1d", "MakePlan2d", "MakePlan3d", "MakePlanMany",
    "MakePlanMany64", "XtMakePlanMany", "XtMakePlanGuru64", "Estimate1d", "Estimate2d", "Estimate3d", "EstimateMany", "GetSize",
    "GetSize1d", "GetSize2d", "GetSize3d", "GetSizeMany", "GetSizeMany64", "XtGetSizeMany", "SetStream", "SetWorkArea",
    "SetAutoAllocation", "ExecC2C", "ExecR2C", "ExecC2R", "ExecZ2Z", "ExecD2Z", "ExecZ2D", "XtExec", "GetVersion", "GetProperty",
    "SetPlanPropertyInt64", "GetPlanPropertyInt64", "ResetPlanProperty", "Debug", "XtSetCallback", "XtClearCallback",
    "XtSetCallbackSharedSize", "XtSetJITCallback", "XtSetGPUs", "XtSetWorkArea", "XtSetWorkAreaPolicy", "XtMalloc", "XtFree",
    "XtMemcpy", "XtQueryPlan", "XtExecDescriptor", "XtExecDescriptorC2C", "XtExecDescriptorR2C", "XtExecDescriptorC2R",
    "XtExecDescriptorZ2Z", "XtExecDescriptorD2Z", "XtExecDescriptorZ2D",
};
static_assert(sizeof NAMES / sizeof *NAMES == 58, "as many as there are");

static void names() {
    for (const char *name : NAMES) {
        if (dlsym(RTLD_DEFAULT, (std::string("cufft") + name).c_str()) == nullptr) DIE("there is no cufft%s", name);
    }
}

// A batch that lies element beside element, by the calls that PyTorch makes.
static void as_pytorch() {
    const Long n = 30, batch = 8;
    std::vector<std::complex<float>> values(n * batch), found(n * batch);
    for (auto &value : values) value = {(float)noise(), (float)noise()};
    std::complex<float> *data;
    CUDA(cudaMalloc(&data, values.size() * 8));
    CUDA(cudaMemcpy(data, values.data(), values.size() * 8, cudaMemcpyHostToDevice));
    cufftHandle plan;
    size_t size = 99;
    Long side = n;
    FFT(cufftCreate(&plan));
    FFT(cufftSetAutoAllocation(plan, 0));
    FFT(cufftXtMakePlanMany(plan, 1, &side, &side, batch, 1, CUDA_C_32F, &side, batch, 1, CUDA_C_32F, batch, &size, CUDA_C_32F));
    if (size != 0) DIE("the program is asked for a work area of %zu bytes", size);
    FFT(cufftSetStream(plan, nullptr));
    FFT(cufftSetWorkArea(plan, nullptr));
    FFT(cufftXtExec(plan, data, data, CUFFT_FORWARD));
    CUDA(cudaMemcpy(found.data(), data, values.size() * 8, cudaMemcpyDeviceToHost));
    for (Long b = 0; b < batch; b++) {
        std::vector<Complex> line(n);
        for (Long j = 0; j < n; j++) line[j] = Complex(values[j * batch + b]);
        transform(line, {(int)n}, -1);
        for (Long k = 0; k < n; k++) {
            if (std::abs(Complex(found[k * batch + b]) - line[k]) > 1e-4) DIE("as PyTorch: transform %lld, element %lld", b, k);
        }
    }
    FFT(cufftDestroy(plan));
    CUDA(cudaFree(data));
}

static void calls() {
    cufftHandle plan = 0, other = 0;
    size_t size = 1;
    int version = 0;
    char *data, *host;
    names();
    as_pytorch();
    CUDA(cudaMalloc(&data, 1024 * 8));
    FFT(cufftGetVersion(&version));
    if (version < 11000) DIE("version %d", version);
    FFT(cufftEstimate1d(1024, CUFFT_C2C, 4, &size));
    EXPECT(cufftEstimate1d(-1, CUFFT_C2C, 4, &size), CUFFT_INVALID_SIZE);
    EXPECT(cufftPlan1d(&plan, 0, CUFFT_C2C, 1), CUFFT_INVALID_SIZE);
    EXPECT(cufftPlan1d(&plan, 8, CUFFT_C2C, 0), CUFFT_INVALID_SIZE);
    // None of them keeps a place: there are 8192.
    for (int round = 0; round < 8200; round++) EXPECT(cufftPlan1d(&plan, -1, CUFFT_C2C, 1), CUFFT_INVALID_SIZE);
    EXPECT(cufftPlan1d(&plan, 8, (cufftType)7, 1), CUFFT_INVALID_TYPE);
    EXPECT(cufftPlan1d(nullptr, 8, CUFFT_C2C, 1), CUFFT_INVALID_VALUE);
    EXPECT(cufftPlan3d(&plan, 1 << 30, 1 << 30, 1 << 30, CUFFT_C2C), CUFFT_INVALID_SIZE);
    EXPECT(cufftPlanMany(&plan, 4, nullptr, nullptr, 1, 0, nullptr, 1, 0, CUFFT_C2C, 1), CUFFT_INVALID_VALUE);
    EXPECT(cufftExecC2C(12345, data, data, CUFFT_FORWARD), CUFFT_INVALID_PLAN);
    EXPECT(cufftDestroy(12345), CUFFT_INVALID_PLAN);
    FFT(cufftCreate(&other));
    EXPECT(cufftExecC2C(other, data, data, CUFFT_FORWARD), CUFFT_INVALID_PLAN);
    FFT(cufftMakePlan1d(other, 1024, CUFFT_C2C, 1, &size));
    EXPECT(cufftMakePlan1d(other, 1024, CUFFT_C2C, 1, &size), CUFFT_INVALID_PLAN);
    FFT(cufftGetSize(other, &size));
    FFT(cufftExecC2C(other, data, data, CUFFT_FORWARD));
    EXPECT(cufftExecC2C(other, data, data, 0), CUFFT_INVALID_VALUE);
    EXPECT(cufftExecR2C(other, data, data), CUFFT_INVALID_TYPE);
    EXPECT(cufftExecC2C(other, nullptr, data, CUFFT_FORWARD), CUFFT_INVALID_VALUE);
    // Behind the end by one element, and before.
    EXPECT(cufftExecC2C(other, data + 8, data + 8, CUFFT_FORWARD), CUFFT_INVALID_VALUE);
    EXPECT(cufftExecC2C(other, data, data + 8, CUFFT_FORWARD), CUFFT_INVALID_VALUE);
    EXPECT(cufftExecC2C(other, (void *)0x1000, data, CUFFT_FORWARD), CUFFT_INVALID_VALUE);
    // Host memory that the driver knows, and some that it does not, or not all of.
    CUDA(cudaMallocHost(&host, 1024 * 8));
    FFT(cufftExecC2C(other, host, data, CUFFT_FORWARD));
    EXPECT(cufftExecC2C(other, host + (1 << 20), data, CUFFT_FORWARD), CUFFT_INVALID_VALUE);
    std::vector<char> unknown(1024 * 8);
    EXPECT(cufftExecC2C(other, unknown.data(), data, CUFFT_FORWARD), CUFFT_INVALID_VALUE);
    Long hint = 9;
    FFT(cufftSetPlanPropertyInt64(other, 1, 1));
    FFT(cufftGetPlanPropertyInt64(other, 1, &hint));
    if (hint != 1) DIE("a property is %lld", hint);
    FFT(cufftResetPlanProperty(other, 1));
    EXPECT(cufftSetPlanPropertyInt64(other, 99, 1), CUFFT_NOT_SUPPORTED);
    EXPECT(cufftXtSetGPUs(other, 1, &version), CUFFT_NOT_IMPLEMENTED);
    FFT(cufftExecC2C(other, data, data, CUFFT_INVERSE));
    FFT(cufftDestroy(other));
    EXPECT(cufftExecC2C(other, data, data, CUFFT_FORWARD), CUFFT_INVALID_PLAN);
    // Plans that are not destroyed: the service keeps them until the program ends.
    for (int k = 0; k < 200; k++) FFT(cufftPlan1d(&plan, 16 + k % 5, CUFFT_C2C, 1));
    FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
    CUDA(cudaDeviceSynchronize());
    std::printf("PASS calls\n");
}

__global__ void fill_late(float2 *data, int n, float value, unsigned rounds) {
    unsigned waste = threadIdx.x + 1;
    for (unsigned round = 0; round < rounds; round++) waste = waste * 1664525u + 1013904223u;
    for (int i = threadIdx.x; i < n; i += blockDim.x) data[i] = make_float2(waste == 7 ? value + 1 : value, 0);
}

__global__ void add(float2 *data, float value) { data[threadIdx.x].x += value; }

static float first(const float2 *data) {
    float2 value;
    CUDA(cudaMemcpy(&value, data, sizeof value, cudaMemcpyDeviceToHost));
    return value.x;
}

static void streams() {
    const int n = 512;
    float2 *data;
    cudaStream_t one, blocking;
    cufftHandle plan;
    size_t size;
    CUDA(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CUDA(cudaStreamCreate(&blocking));
    CUDA(cudaMalloc(&data, n * sizeof *data));
    FFT(cufftPlan1d(&plan, n, CUFFT_C2C, 1));
    // What is before a transform in its stream comes before it, and what is behind comes behind.
    for (cudaStream_t stream : {one, blocking, (cudaStream_t) nullptr, cudaStreamLegacy}) {
        FFT(cufftSetStream(plan, stream));
        for (int round = 1; round <= 8; round++) {
            fill_late<<<1, 256, 0, stream>>>(data, n, (float)round, 20000);
            FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
            add<<<1, 1, 0, stream>>>(data, 3);
            CUDA(cudaStreamSynchronize(stream));
            const float found = first(data);
            if (found != (float)round * n + 3) DIE("round %d: %g", round, found);
        }
    }
    // A blocking stream comes after the legacy one, and so does the stream of each thread.
    for (cudaStream_t stream : {blocking, cudaStreamPerThread}) {
        FFT(cufftSetStream(plan, stream));
        for (int round = 1; round <= 8; round++) {
            fill_late<<<1, 256>>>(data, n, (float)round, 200000);
            FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
            CUDA(cudaStreamSynchronize(stream));
            if (first(data) != (float)round * n) DIE("a stream did not wait for the legacy one: %g", first(data));
        }
    }
    // A graph has a transform as often as it is launched.
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    FFT(cufftSetStream(plan, one));
    CUDA(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    fill_late<<<1, 256, 0, one>>>(data, n, 2, 100);
    FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
    add<<<1, 1, 0, one>>>(data, 1);
    CUDA(cudaStreamEndCapture(one, &graph));
    CUDA(cudaGraphInstantiate(&ready, graph, 0));
    for (int round = 0; round < 3; round++) {
        CUDA(cudaMemset(data, 0, n * sizeof *data));
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaGraphLaunch(ready, one));
        CUDA(cudaStreamSynchronize(one));
        if (first(data) != 2 * n + 1) DIE("launch %d of a graph: %g", round, first(data));
    }
    CUDA(cudaGraphExecDestroy(ready));
    CUDA(cudaGraphDestroy(graph));
    // Captured again and again it is one transform; a plan keeps so many different ones.
    float2 *places;
    cufftHandle row;
    CUDA(cudaMalloc(&places, 2000 * sizeof *places));
    FFT(cufftPlan1d(&row, 8, CUFFT_C2C, 1));
    FFT(cufftSetStream(row, one));
    for (int different : {0, 1}) {
        int code = CUFFT_SUCCESS, round = 0;
        for (; round < 1500 && code == CUFFT_SUCCESS; round++) {
            CUDA(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
            code = cufftExecC2C(row, places, places + different * round, CUFFT_FORWARD);
            CUDA(cudaStreamEndCapture(one, &graph));
            CUDA(cudaGraphDestroy(graph));
        }
        if (different ? code != CUFFT_ALLOC_FAILED || round < 1000 : code != CUFFT_SUCCESS) DIE("round %d of captures: code %d", round, code);
    }
    FFT(cufftExecC2C(row, places, places, CUFFT_FORWARD));
    FFT(cufftDestroy(row));
    CUDA(cudaFree(places));
    // What a blocking stream captures goes on while transforms of another are executed, and is not ordered with them.
    cudaStream_t beside;
    float2 *late;
    CUDA(cudaMalloc(&late, n * sizeof *late));
    CUDA(cudaStreamCreate(&beside));
    FFT(cufftSetStream(plan, blocking));
    CUDA(cudaStreamBeginCapture(beside, cudaStreamCaptureModeGlobal));
    fill_late<<<1, 32, 0, beside>>>(late, n, 2, 100);
    FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
    CUDA(cudaStreamEndCapture(beside, &graph));
    CUDA(cudaGraphDestroy(graph));
    fill_late<<<1, 32, 0, beside>>>(late, n, 2, 400000000);
    FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
    CUDA(cudaStreamSynchronize(blocking));
    if (cudaStreamQuery(beside) != cudaErrorNotReady) DIE("the other stream's kernel was waited for, or is too short");
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaStreamDestroy(beside));
    CUDA(cudaFree(late));
    // A large one is executed by the stream.
    cufftHandle large;
    float2 *many;
    const int more = 1 << 18;
    CUDA(cudaMalloc(&many, more * sizeof *many));
    FFT(cufftPlan1d(&large, more, CUFFT_C2C, 1));
    FFT(cufftSetStream(large, one));
    fill_late<<<1, 256, 0, one>>>(many, more, 1, 100);
    FFT(cufftExecC2C(large, many, many, CUFFT_FORWARD));
    FFT(cufftDestroy(large));
    CUDA(cudaStreamSynchronize(one));
    if (first(many) != more) DIE("a large transform: %g", first(many));
    CUDA(cudaFree(many));
    // What is queued behind other work has passed when its memory is gone, and the plans are there still.
    FFT(cufftPlan1d(&large, more, CUFFT_C2C, 1));
    FFT(cufftSetStream(large, one));
    for (int round = 0; round < 4; round++) {
        CUDA(cudaMalloc(&many, more * sizeof *many));
        fill_late<<<1, 256, 0, one>>>(many, more, 1, 200000);
        FFT(cufftExecC2C(large, many, many, CUFFT_FORWARD));
        CUDA(cudaFree(many));
    }
    FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
    CUDA(cudaStreamSynchronize(one));
    FFT(cufftGetSize(large, &size));
    FFT(cufftDestroy(large));
    // Managed and host memory: copied there and back in the stream, gaps and all.
    float2 *managed, *pinned;
    CUDA(cudaMallocManaged(&managed, 2 * n * sizeof *managed));
    CUDA(cudaMallocHost(&pinned, 2 * n * sizeof *pinned));
    cufftHandle gaps;
    int side = n;
    FFT(cufftPlanMany(&gaps, 1, &side, &side, 1, n, &side, 2, 2 * n, CUFFT_C2C, 1));
    FFT(cufftSetStream(gaps, one));
    for (int round = 1; round <= 3; round++) {
        for (int k = 0; k < 2 * n; k++) pinned[k] = managed[k] = make_float2((float)round, 0);
        FFT(cufftExecC2C(gaps, pinned, managed, CUFFT_FORWARD));
        CUDA(cudaStreamSynchronize(one));
        if (managed[0].x != (float)round * n || managed[1].x != round || managed[2 * n - 1].x != round) DIE("managed memory: %g %g", managed[0].x, managed[1].x);
        FFT(cufftSetStream(plan, one));
        FFT(cufftExecC2C(plan, pinned, pinned, CUFFT_FORWARD));
        CUDA(cudaStreamSynchronize(one));
        if (pinned[0].x != (float)round * n || std::abs(pinned[1].x) > 1e-3f || pinned[n].x != round) DIE("host memory: %g %g", pinned[0].x, pinned[1].x);
    }
    // Two streams that use one plan use one after the other what the plan copies through.
    cudaStream_t two;
    float2 *ends[2];
    CUDA(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    for (float2 *&end : ends) CUDA(cudaMallocHost(&end, more * sizeof *end));
    FFT(cufftPlan1d(&large, more, CUFFT_C2C, 1));
    for (int round = 1; round <= 10; round++) {
        for (int k = 0; k < 2; k++) {
            std::memset(ends[k], 0, more * sizeof *ends[k]);
            ends[k][0].x = (float)(2 * round + k);
        }
        for (int k = 0; k < 2; k++) {
            FFT(cufftSetStream(large, k ? two : one));
            FFT(cufftExecC2C(large, ends[k], ends[k], CUFFT_FORWARD));
        }
        CUDA(cudaDeviceSynchronize());
        for (int k = 0; k < 2 * more; k++) {
            const float found = ends[k % 2][k / 2].x;
            if (found != (float)(2 * round + k % 2)) DIE("two streams, round %d: %g at %d of stream %d", round, found, k / 2, k % 2);
        }
    }
    FFT(cufftDestroy(large));
    CUDA(cudaStreamDestroy(two));
    for (float2 *end : ends) CUDA(cudaFreeHost(end));
    // Not in a capture, which goes on.
    FFT(cufftSetStream(plan, one));
    CUDA(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    EXPECT(cufftExecC2C(plan, pinned, pinned, CUFFT_FORWARD), CUFFT_NOT_SUPPORTED);
    CUDA(cudaStreamEndCapture(one, &graph));
    CUDA(cudaGraphDestroy(graph));
    FFT(cufftExecC2C(plan, pinned, pinned, CUFFT_FORWARD));
    CUDA(cudaStreamSynchronize(one));
    FFT(cufftDestroy(gaps));
    // Nor does what another thread's plan copies through, made and freed, end a capture that forbids that to all.
    cufftHandle beside_it;
    FFT(cufftPlan1d(&beside_it, n, CUFFT_C2C, 1));
    managed[0] = make_float2(3, 0);
    for (int k = 1; k < n; k++) managed[k] = make_float2(0, 0);
    CUDA(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    std::thread([&] {
        cudaStream_t own;
        CUDA(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
        FFT(cufftSetStream(beside_it, own));
        FFT(cufftExecC2C(beside_it, managed, managed, CUFFT_FORWARD));
        CUDA(cudaStreamSynchronize(own));
        FFT(cufftDestroy(beside_it));
        // What the program itself may not do there is as before.
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
        if (mode != cudaStreamCaptureModeGlobal) DIE("a transform leaves its thread's capture mode at %d", (int)mode);
    }).join();
    FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
    CUDA(cudaStreamEndCapture(one, &graph));
    CUDA(cudaGraphDestroy(graph));
    if (managed[0].x != 3 || managed[1].x != 3) DIE("beside a capture: %g %g", managed[0].x, managed[1].x);
    CUDA(cudaFree(managed));
    CUDA(cudaFreeHost(pinned));
    // Memory that is freed and allocated again is another, also at the same address, and many of them.
    FFT(cufftSetStream(plan, nullptr));
    for (int round = 0; round < 300; round++) {
        float2 *next;
        CUDA(cudaMalloc(&next, n * sizeof *next * (1 + round % 3)));
        fill_late<<<1, 256>>>(next, n, (float)round, 1);
        FFT(cufftExecC2C(plan, next, next, CUFFT_FORWARD));
        if (first(next) != (float)round * n) DIE("allocation %d: %g", round, first(next));
        CUDA(cudaFree(next));
    }
    FFT(cufftDestroy(plan));
    std::printf("PASS streams\n");
}

static void hold() {
    const int n = 64;
    float2 *data;
    char line[64];
    cufftHandle plan, next;
    CUDA(cudaMalloc(&data, n * sizeof *data));
    FFT(cufftPlan1d(&plan, n, CUFFT_C2C, 1));
    std::printf("ready\n");
    std::fflush(stdout);
    while (std::fgets(line, sizeof line, stdin)) {
        fill_late<<<1, 256>>>(data, n, 1, 1);
        const int code = cufftExecC2C(plan, data, data, CUFFT_FORWARD);
        const int made = std::strncmp(line, "make", 4) == 0 ? cufftPlan1d(&next, n, CUFFT_C2C, 1) : -1;
        if (made == CUFFT_SUCCESS) plan = next;
        std::printf("code %d made %d found %g\n", code, made, first(data));
        std::fflush(stdout);
    }
}

// Forks while another thread keeps the library busy: a child gets an error from every call, and never hangs.
static void forks() {
    const int n = 64;
    float2 *data;
    cufftHandle plan, next;
    std::atomic<bool> over{false};
    // Before there is a plan a child may do what it likes.
    if (const pid_t child = fork(); child == 0) {
        FFT(cufftPlan1d(&plan, n, CUFFT_C2C, 1));
        std::_Exit(0);
    } else if (int status = 1; waitpid(child, &status, 0) != child || status != 0) {
        DIE("a child of a process without plans ends with %d", status);
    }
    CUDA(cudaMalloc(&data, n * sizeof *data));
    FFT(cufftPlan1d(&plan, n, CUFFT_C2C, 1));
    auto work = [&] {
        for (cufftHandle own; !over;) {
            FFT(cufftPlan1d(&own, n, CUFFT_C2C, 1));
            FFT(cufftExecC2C(own, data, data, CUFFT_FORWARD));
            FFT(cufftDestroy(own));
        }
    };
    std::thread one(work), other(work);
    for (int round = 0; round < 50; round++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);
            const int codes[] = {cufftPlan1d(&next, n, CUFFT_C2C, 1), cufftCreate(&next), cufftExecC2C(plan, data, data, CUFFT_FORWARD),
                                 cufftSetStream(plan, nullptr), cufftDestroy(plan)};
            bool right = cufftXtSetGPUs(plan, 1, &next) == CUFFT_NOT_IMPLEMENTED;
            for (int code : codes) right = right && code == CUFFT_SETUP_FAILED;
            std::_Exit(right ? 0 : 3);
        }
        int status = 1;
        if (waitpid(child, &status, 0) != child || status != 0) DIE("child %d ends with %d", round, status);
    }
    over = true;
    one.join(), other.join();
    FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
    std::printf("PASS forks\n");
}

static double microseconds() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void times(bool small) {
    struct Timed { const char *name; Sizes sides; int batch, rounds; };
    std::vector<Timed> all = {{"1024 x 1", {1024}, 1, 2000}};
    if (!small) all.push_back({"2^20 x 64", {1 << 20}, 64, 50}), all.push_back({"4096^2", {4096, 4096}, 1, 100});
    for (Timed &timed : all) {
        const size_t count = product(timed.sides) * timed.batch;
        float2 *data;
        cufftHandle plan, again;
        CUDA(cudaMalloc(&data, count * sizeof *data));
        CUDA(cudaMemset(data, 0, count * sizeof *data));
        CUDA(cudaDeviceSynchronize());
        const double begun = microseconds();
        FFT(cufftPlanMany(&plan, (int)timed.sides.size(), timed.sides.data(), nullptr, 1, 0, nullptr, 1, 0, CUFFT_C2C, timed.batch));
        CUDA(cudaDeviceSynchronize());
        const double made = microseconds();
        FFT(cufftPlanMany(&again, (int)timed.sides.size(), timed.sides.data(), nullptr, 1, 0, nullptr, 1, 0, CUFFT_C2C, timed.batch));
        CUDA(cudaDeviceSynchronize());
        const double second = microseconds();
        for (int k = 0; k < 10; k++) FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
        CUDA(cudaDeviceSynchronize());
        std::vector<double> alone;
        for (int k = 0; k < timed.rounds; k++) {
            const double start = microseconds();
            FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
            CUDA(cudaDeviceSynchronize());
            alone.push_back(microseconds() - start);
        }
        const double start = microseconds();
        for (int k = 0; k < timed.rounds; k++) FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
        CUDA(cudaDeviceSynchronize());
        const double row = (microseconds() - start) / timed.rounds;
        std::sort(alone.begin(), alone.end());
        std::printf("%-10s first plan %8.1f ms, second %7.1f ms; alone p50 %9.2f us, p99 %9.2f us; in a row %9.2f us\n", timed.name,
                    (made - begun) / 1000, (second - made) / 1000, alone[alone.size() / 2], alone[alone.size() * 99 / 100], row);
        FFT(cufftDestroy(plan));
        FFT(cufftDestroy(again));
        CUDA(cudaFree(data));
    }
}

static void leaves() {
    cufftHandle plan;
    FFT(cufftPlan1d(&plan, 64, CUFFT_C2C, 1));
    const pid_t child = fork();
    if (child == 0) {
        for (int descriptor : {0, 1, 2}) close(descriptor);
        alarm(100);
        for (;;) pause();
    }
    std::printf("PASS leaves %d\n", (int)child);
    std::fflush(stdout);
    std::_Exit(0);
}

int main(int argc, char **argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "right") right(argc > 2 ? std::atoi(argv[2]) : 64);
    else if (what == "calls") calls();
    else if (what == "streams") streams();
    else if (what == "hold") hold();
    else if (what == "forks") forks();
    else if (what == "leaves") leaves();
    else if (what == "times") times(argc > 2);
    else DIE("tenant right [MOST]|calls|streams|hold|forks|leaves|times [small]");
}
