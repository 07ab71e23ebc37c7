// What the suites of kernels share: memory that both sides have, one run with a check against the CPU, and times.
//
// usage: kernels_NAME [large] [--time N] [KERNEL...]
//   --time N  after its check, every kernel is launched N times, five times over; the median goes to stdout as a line of
//             JSON, in nanoseconds for a launch
//   KERNEL    only these
#pragma once

#include "program.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

// An array on the device, and its copy on the host.
template <class T> class Array {
public:
    explicit Array(size_t n) : host(n) { CHECK(cudaMalloc(&device, std::max<size_t>(n, 1) * sizeof(T))); }
    template <class F> Array(size_t n, F value) : Array(n) {
        for (size_t i = 0; i < n; i++) host[i] = value(static_cast<unsigned>(i));
        up();
    }
    ~Array() { cudaFree(device); }
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;

    void up() { CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice)); }
    const std::vector<T> &down() {
        CHECK(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
        return host;
    }
    void clear() { CHECK(cudaMemset(device, 0, host.size() * sizeof(T))); }
    operator T *() const { return device; }

    std::vector<T> host;

private:
    T *device;
};

class Suite {
public:
    Suite(const char *name, int argc, char **argv) : program(name, argc, argv), large(program.large) {
        for (int i = 1 + large; i < argc; i++) {
            if (std::strcmp(argv[i], "--time") == 0 && i + 1 < argc) {
                launches = std::atoi(argv[++i]);
                if (launches < 1) Program::fail("\"%s\" is no number of launches", argv[i]);
            } else {
                wanted.push_back(argv[i]);
            }
        }
    }

    // Whether a kernel is to run; it is what is run until the next one.
    bool wants(const char *name) {
        kernel = name;
        return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
    }

    // Launches, has the result checked, and takes the time of more launches if that was asked for.
    template <class Launch, class Check> void run(Launch launch, Check check) {
        launch();
        CHECK_KERNEL();
        check();
        count++;
        if (launches > 0) time(launch);
    }

    [[noreturn]] void wrong(size_t at, double got, double expected) const {
        Program::fail("%s: [%zu] is %.9g, not %.9g", kernel, at, got, expected);
    }

    // Whether numbers agree to so much of the larger of `scale` and the number itself.
    void near(size_t at, double got, double expected, double tolerance, double scale = 1e-6) const {
        if (!(std::fabs(got - expected) <= tolerance * std::max(std::fabs(expected), scale))) wrong(at, got, expected);
    }

    template <class A, class B> void equal(size_t at, A got, B expected) const {
        if (!(got == static_cast<A>(expected))) wrong(at, static_cast<double>(got), static_cast<double>(expected));
    }

    int finish() const {
        if (count == 0) Program::fail("there is no such kernel");
        return Program::pass("%d kernels", count);
    }

    const Program program;
    const bool large;

private:
    template <class Launch> void time(Launch launch) const {
        cudaEvent_t start, stop;
        CHECK(cudaEventCreate(&start));
        CHECK(cudaEventCreate(&stop));
        std::vector<float> times;
        for (int round = 0; round < 5; round++) {
            CHECK(cudaEventRecord(start));
            for (int i = 0; i < launches; i++) launch();
            CHECK(cudaEventRecord(stop));
            CHECK(cudaEventSynchronize(stop));
            float milliseconds = 0;
            CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
            times.push_back(milliseconds);
        }
        CHECK(cudaEventDestroy(start));
        CHECK(cudaEventDestroy(stop));
        std::sort(times.begin(), times.end());
        std::printf("{\"kernel\": \"%s\", \"ns\": %.1f}\n", kernel, times[2] * 1e6 / launches);
        std::fflush(stdout);
    }

    const char *kernel = "?";
    std::vector<std::string> wanted;
    int launches = 0, count = 0;
};

inline int blocks(size_t threads, int block) { return static_cast<int>((threads + block - 1) / block); }
