// cuFFT: transforms of many lengths and kinds. Of each result some elements are computed anew on the host, term by term in
// double precision, and the inverse transform has to give back what it began with.
//
// cufft_lengths [MOST [STEP [POWER]]]: lengths from 2 to MOST (4096), each STEP-th (1), and powers of two up to 2^POWER (24)
#include "program.h"
#include <chrono>
#include <complex>
#include <cufft.h>
#include <random>
#include <vector>

using Complex = std::complex<double>;

#define FFT(call)                                                                                      \
    do {                                                                                               \
        const cufftResult code = (call);                                                               \
        if (code != CUFFT_SUCCESS) Program::fail("%s: code %d (length %d)", #call, code, length_now);  \
    } while (0)

static int length_now;
static long transforms;
static std::mt19937 generator(7);

template <typename T> struct Kind;
template <> struct Kind<float> {
    static constexpr cufftType c2c = CUFFT_C2C, r2c = CUFFT_R2C, c2r = CUFFT_C2R;
    static cufftResult forward(cufftHandle plan, std::complex<float> *from, std::complex<float> *to, int way) {
        return cufftExecC2C(plan, reinterpret_cast<cufftComplex *>(from), reinterpret_cast<cufftComplex *>(to), way);
    }
    static cufftResult forward(cufftHandle plan, float *from, std::complex<float> *to) {
        return cufftExecR2C(plan, from, reinterpret_cast<cufftComplex *>(to));
    }
    static cufftResult back(cufftHandle plan, std::complex<float> *from, float *to) {
        return cufftExecC2R(plan, reinterpret_cast<cufftComplex *>(from), to);
    }
    static constexpr double bound = 2e-6;
};
template <> struct Kind<double> {
    static constexpr cufftType c2c = CUFFT_Z2Z, r2c = CUFFT_D2Z, c2r = CUFFT_Z2D;
    static cufftResult forward(cufftHandle plan, std::complex<double> *from, std::complex<double> *to, int way) {
        return cufftExecZ2Z(plan, reinterpret_cast<cufftDoubleComplex *>(from), reinterpret_cast<cufftDoubleComplex *>(to), way);
    }
    static cufftResult forward(cufftHandle plan, double *from, std::complex<double> *to) {
        return cufftExecD2Z(plan, from, reinterpret_cast<cufftDoubleComplex *>(to));
    }
    static cufftResult back(cufftHandle plan, std::complex<double> *from, double *to) {
        return cufftExecZ2D(plan, reinterpret_cast<cufftDoubleComplex *>(from), to);
    }
    static constexpr double bound = 1e-14;
};

template <typename T> static std::vector<T> noise(size_t count) {
    std::uniform_real_distribution<T> some(-1, 1);
    std::vector<T> values(count);
    for (T &value : values) value = some(generator);
    return values;
}

// One element of the transform of n values that lie `stride` apart, of one or two numbers each.
template <typename T> static Complex element(const T *from, int numbers, size_t n, size_t stride, size_t k) {
    Complex sum = 0;
    for (size_t j = 0; j < n; j++) {
        const double angle = -2 * M_PI * static_cast<double>(j * k % n) / static_cast<double>(n);
        const T *at = from + j * stride * numbers;
        sum += Complex(at[0], numbers == 2 ? at[1] : 0) * Complex(std::cos(angle), std::sin(angle));
    }
    return sum;
}

template <typename T> static void close(const char *what, Complex found, Complex expected, double scale) {
    const double bound = Kind<T>::bound * scale;
    if (!(std::abs(found - expected) <= bound)) {
        Program::fail("%s, length %d: (%g, %g) is not (%g, %g), more than %g apart", what, length_now, found.real(), found.imag(),
                      expected.real(), expected.imag(), bound);
    }
}

static double scale_of(size_t n) { return std::sqrt(static_cast<double>(n)) * (8 + std::log2(static_cast<double>(n)) * 4); }

template <typename T> static void complex_to_complex(int n, int batch, int stride, bool in_place) {
    length_now = n;
    transforms++;
    const size_t distance = static_cast<size_t>(n) * stride, all = distance * batch;
    std::vector<T> values = noise<T>(all * 2), found(all * 2);
    std::complex<T> *from, *to;
    CHECK(cudaMalloc(&from, all * sizeof *from));
    to = from;
    if (!in_place) CHECK(cudaMalloc(&to, all * sizeof *to));
    CHECK(cudaMemcpy(from, values.data(), all * sizeof *from, cudaMemcpyHostToDevice));
    cufftHandle plan;
    FFT(cufftPlanMany(&plan, 1, &n, &n, stride, static_cast<int>(distance), &n, stride, static_cast<int>(distance), Kind<T>::c2c, batch));
    FFT(Kind<T>::forward(plan, from, to, CUFFT_FORWARD));
    CHECK(cudaMemcpy(found.data(), to, all * sizeof *from, cudaMemcpyDeviceToHost));
    for (int turn = 0; turn < 3; turn++) {
        const size_t b = generator() % batch, k = turn == 0 ? n - 1 : generator() % n, at = (b * distance + k * stride) * 2;
        close<T>("complex", Complex(found[at], found[at + 1]), element(&values[b * distance * 2], 2, n, stride, k), scale_of(n));
    }
    FFT(Kind<T>::forward(plan, to, to, CUFFT_INVERSE));
    CHECK(cudaMemcpy(found.data(), to, all * sizeof *from, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < all; i += stride) {
        close<T>("complex, there and back", Complex(found[2 * i], found[2 * i + 1]) / static_cast<double>(n),
                 Complex(values[2 * i], values[2 * i + 1]), scale_of(n) / std::sqrt(n));
    }
    FFT(cufftDestroy(plan));
    CHECK(cudaFree(from));
    if (!in_place) CHECK(cudaFree(to));
}

template <typename T> static void real_to_complex(int n, int batch) {
    length_now = n;
    transforms++;
    const size_t half = n / 2 + 1, all = static_cast<size_t>(n) * batch;
    std::vector<T> values = noise<T>(all), found(half * batch * 2), again(all);
    T *from;
    std::complex<T> *to;
    CHECK(cudaMalloc(&from, all * sizeof *from));
    CHECK(cudaMalloc(&to, half * batch * sizeof *to));
    CHECK(cudaMemcpy(from, values.data(), all * sizeof *from, cudaMemcpyHostToDevice));
    cufftHandle there, back;
    FFT(cufftPlan1d(&there, n, Kind<T>::r2c, batch));
    FFT(Kind<T>::forward(there, from, to));
    CHECK(cudaMemcpy(found.data(), to, half * batch * sizeof *to, cudaMemcpyDeviceToHost));
    for (int turn = 0; turn < 2; turn++) {
        const size_t b = generator() % batch, k = turn == 0 ? half - 1 : generator() % half, at = (b * half + k) * 2;
        close<T>("real", Complex(found[at], found[at + 1]), element(&values[b * n], 1, n, 1, k), scale_of(n));
    }
    FFT(cufftPlan1d(&back, n, Kind<T>::c2r, batch));
    FFT(Kind<T>::back(back, to, from));
    CHECK(cudaMemcpy(again.data(), from, all * sizeof *from, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < all; i++) close<T>("real, there and back", again[i] / static_cast<double>(n), values[i], scale_of(n) / std::sqrt(n));
    FFT(cufftDestroy(there));
    FFT(cufftDestroy(back));
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
}

// Several dimensions: an element is the transform along each of them in turn.
template <typename T> static void of_dimensions(std::vector<int> sides) {
    transforms++;
    size_t all = 1;
    for (int side : sides) all *= side;
    length_now = static_cast<int>(all);
    std::vector<T> values = noise<T>(all * 2), found(all * 2);
    std::complex<T> *data;
    CHECK(cudaMalloc(&data, all * sizeof *data));
    CHECK(cudaMemcpy(data, values.data(), all * sizeof *data, cudaMemcpyHostToDevice));
    cufftHandle plan;
    FFT(cufftPlanMany(&plan, static_cast<int>(sides.size()), sides.data(), nullptr, 1, 0, nullptr, 1, 0, Kind<T>::c2c, 1));
    FFT(Kind<T>::forward(plan, data, data, CUFFT_FORWARD));
    CHECK(cudaMemcpy(found.data(), data, all * sizeof *data, cudaMemcpyDeviceToHost));
    for (int turn = 0; turn < 2; turn++) {
        const size_t wanted = generator() % all;
        Complex sum = 0;
        for (size_t i = 0; i < all; i++) {
            double angle = 0;
            size_t left = i, to = wanted;
            for (size_t d = sides.size(); d-- > 0; left /= sides[d], to /= sides[d]) {
                angle -= 2 * M_PI * static_cast<double>(left % sides[d] * (to % sides[d]) % sides[d]) / sides[d];
            }
            sum += Complex(values[2 * i], values[2 * i + 1]) * Complex(std::cos(angle), std::sin(angle));
        }
        close<T>("dimensions", Complex(found[2 * wanted], found[2 * wanted + 1]), sum, scale_of(all));
    }
    FFT(cufftDestroy(plan));
    CHECK(cudaFree(data));
}

int main(int argc, char **argv) {
    const Program program("cufft_lengths", 1, argv);
    const int most = argc > 1 ? std::atoi(argv[1]) : 4096, step = argc > 2 ? std::atoi(argv[2]) : 1, power = argc > 3 ? std::atoi(argv[3]) : 24;
    for (int n = 2; n <= most; n += step) {
        complex_to_complex<float>(n, 2, 1, n % 2 == 0);
        if (n % 5 == 0) real_to_complex<float>(n, 2);
        if (n % 7 == 0) complex_to_complex<double>(n, 1, 1, true);
        if (n % 11 == 0) real_to_complex<double>(n, 1);
        if (n % 13 == 0) complex_to_complex<float>(n, 3, 2, false);
    }
    for (int bits = 1; bits <= power; bits++) {
        const int n = 1 << bits;
        complex_to_complex<float>(n, 1, 1, bits % 2 == 0);
        real_to_complex<float>(n, 1);
        if (bits <= power - 2) complex_to_complex<double>(n, 1, 1, true), real_to_complex<double>(n, 1);
    }
    for (int n : {4099, 10007, 65537, 99999, 100000, 131071}) {
        if (n > 1 << power) break;
        complex_to_complex<float>(n, 1, 1, false);
        real_to_complex<double>(n, 1);
    }
    of_dimensions<float>({64, 48});
    of_dimensions<float>({17, 31});
    of_dimensions<double>({32, 100});
    of_dimensions<float>({16, 12, 10});
    of_dimensions<double>({8, 9, 7});
    int version = 0;
    cufftGetVersion(&version);
    return Program::pass("%ld plans, cuFFT %d", transforms, version);
}
