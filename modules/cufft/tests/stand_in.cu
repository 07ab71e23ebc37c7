// Stands in for NVIDIA's library in tests of the service: cuFFT's calls that a worker makes, with sums term by term in kernels.
// Results are made in the work area, and moved from there, so that it has to be there and as long as the plan says.
#include "../include/cufft.h"

#include <map>

struct End {
    Long counts[3], pitches[3], distance;
    int numbers;

    __device__ size_t at(Long batch, Long x, Long y, Long z) const {
        return (batch * distance + x * pitches[0] + y * pitches[1] + z * pitches[2]) * numbers;
    }
};

struct Shape {
    Long sides[3], batch;
    bool twice, real_in, real_out, basic;
    End in, out;
};

template <class T> struct Pair { T x, y; };

template <class T> __device__ Pair<T> element(const Shape &shape, const T *from, Long batch, Long x, Long y, Long z) {
    const bool other = shape.real_out && z > shape.sides[2] / 2;
    if (other) x = (shape.sides[0] - x) % shape.sides[0], y = (shape.sides[1] - y) % shape.sides[1], z = shape.sides[2] - z;
    const size_t at = shape.in.at(batch, x, y, z);
    const T imaginary = shape.real_in ? 0 : from[at + 1];
    return {from[at], other ? -imaginary : imaginary};
}

template <class T> __global__ void sums(Shape shape, const T *from, Pair<T> *work, int way) {
    const Long index = blockIdx.x * (Long)blockDim.x + threadIdx.x, *n = shape.sides, *out = shape.out.counts;
    const Long all = out[0] * out[1] * out[2];
    if (index >= all * shape.batch) return;
    const Long batch = index / all, x = index % all / (out[1] * out[2]), y = index / out[2] % out[1], z = index % out[2];
    double sum_x = 0, sum_y = 0;
    for (Long a = 0; a < n[0]; a++) {
        for (Long b = 0; b < n[1]; b++) {
            for (Long c = 0; c < n[2]; c++) {
                const Pair<T> value = element(shape, from, batch, a, b, c);
                const double turns = (double)(a * x % n[0]) / n[0] + (double)(b * y % n[1]) / n[1] + (double)(c * z % n[2]) / n[2];
                const double real = cospi(2 * turns), imaginary = way * sinpi(2 * turns);
                sum_x += value.x * real - value.y * imaginary;
                sum_y += value.x * imaginary + value.y * real;
            }
        }
    }
    work[index] = {(T)sum_x, (T)sum_y};
}

template <class T> __global__ void move(Shape shape, const Pair<T> *work, T *to) {
    const Long index = blockIdx.x * (Long)blockDim.x + threadIdx.x, *out = shape.out.counts;
    const Long all = out[0] * out[1] * out[2];
    if (index >= all * shape.batch) return;
    const size_t at = shape.out.at(index / all, index % all / (out[1] * out[2]), index / out[2] % out[1], index % out[2]);
    to[at] = work[index].x;
    if (!shape.real_out) to[at + 1] = work[index].y;
}

struct Plan {
    Shape shape = {};
    bool made = false, automatic = true;
    void *area = nullptr;
    cudaStream_t stream = nullptr;
};

static std::map<cufftHandle, Plan> plans;
static cufftHandle last;

static void lay(End &end, const Shape &shape, bool real, int rank, const Long *embed, Long stride, Long distance) {
    const bool half = !real && (shape.real_in || shape.real_out);
    for (int d = 0; d < 3; d++) end.counts[d] = shape.sides[d];
    if (half) end.counts[2] = shape.sides[2] / 2 + 1;
    Long sides[3] = {end.counts[0], end.counts[1], end.counts[2]};
    if (embed) {
        for (int d = 0; d < rank; d++) sides[3 - rank + d] = embed[d];
    }
    end.pitches[2] = embed ? stride : 1;
    end.pitches[1] = end.pitches[2] * sides[2];
    end.pitches[0] = end.pitches[1] * sides[1];
    end.distance = embed ? distance : sides[0] * sides[1] * sides[2];
    end.numbers = real ? 1 : 2;
}

extern "C" {
cufftResult cufftCreate(cufftHandle *to) { return plans[*to = ++last], CUFFT_SUCCESS; }
cufftResult cufftDestroy(cufftHandle plan) { return plans.erase(plan) ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN; }
cufftResult cufftSetAutoAllocation(cufftHandle plan, int automatic) { return plans.at(plan).automatic = automatic, CUFFT_SUCCESS; }
cufftResult cufftSetWorkArea(cufftHandle plan, void *area) { return plans.at(plan).area = area, CUFFT_SUCCESS; }
cufftResult cufftSetStream(cufftHandle plan, cudaStream_t stream) { return plans.at(plan).stream = stream, CUFFT_SUCCESS; }
cufftResult cufftGetVersion(int *version) { return *version = 1, CUFFT_SUCCESS; }

cufftResult cufftMakePlanMany64(cufftHandle handle, int rank, Long *n, Long *inembed, Long istride, Long idist, Long *onembed, Long ostride, Long odist,
                                cufftType type, Long batch, size_t *size) {
    Plan &plan = plans.at(handle);
    if (plan.automatic) return CUFFT_NOT_IMPLEMENTED;
    Shape &shape = plan.shape;
    for (int d = 0; d < 3; d++) shape.sides[d] = d < 3 - rank ? 1 : n[d - (3 - rank)];
    shape.batch = batch;
    shape.twice = type & 0x40;
    shape.real_in = type == CUFFT_R2C || type == CUFFT_D2Z;
    shape.real_out = type == CUFFT_C2R || type == CUFFT_Z2D;
    shape.basic = !inembed || !onembed;
    lay(shape.in, shape, shape.real_in, rank, shape.basic ? nullptr : inembed, istride, idist);
    lay(shape.out, shape, shape.real_out, rank, shape.basic ? nullptr : onembed, ostride, odist);
    *size = shape.out.counts[0] * shape.out.counts[1] * shape.out.counts[2] * batch * (shape.twice ? 16 : 8);
    plan.made = true;
    return CUFFT_SUCCESS;
}
}

static void pad(End &end, const Shape &shape) {
    const Long row = 2 * (shape.sides[2] / 2 + 1);
    end.pitches[1] = row, end.pitches[0] = row * shape.sides[1], end.distance = end.pitches[0] * shape.sides[0];
}

template <class T> static cufftResult run(cufftHandle handle, void *from, void *to, int way) {
    const auto found = plans.find(handle);
    if (found == plans.end() || !found->second.made) return CUFFT_INVALID_PLAN;
    const Plan &plan = found->second;
    Shape shape = plan.shape;
    if (shape.basic && from == to && shape.real_in) pad(shape.in, shape);
    if (shape.basic && from == to && shape.real_out) pad(shape.out, shape);
    const Long all = shape.out.counts[0] * shape.out.counts[1] * shape.out.counts[2] * shape.batch;
    const unsigned blocks = static_cast<unsigned>((all + 63) / 64);
    sums<T><<<blocks, 64, 0, plan.stream>>>(shape, (const T *)from, (Pair<T> *)plan.area, way);
    move<T><<<blocks, 64, 0, plan.stream>>>(shape, (const Pair<T> *)plan.area, (T *)to);
    return cudaGetLastError() == cudaSuccess ? CUFFT_SUCCESS : CUFFT_EXEC_FAILED;
}

extern "C" {
cufftResult cufftExecC2C(cufftHandle plan, void *from, void *to, int way) { return run<float>(plan, from, to, way); }
cufftResult cufftExecZ2Z(cufftHandle plan, void *from, void *to, int way) { return run<double>(plan, from, to, way); }
cufftResult cufftExecR2C(cufftHandle plan, void *from, void *to) { return run<float>(plan, from, to, -1); }
cufftResult cufftExecC2R(cufftHandle plan, void *from, void *to) { return run<float>(plan, from, to, 1); }
cufftResult cufftExecD2Z(cufftHandle plan, void *from, void *to) { return run<double>(plan, from, to, -1); }
cufftResult cufftExecZ2D(cufftHandle plan, void *from, void *to) { return run<double>(plan, from, to, 1); }
}
