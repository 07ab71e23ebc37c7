// What the test programs share: the choice of size, checked CUDA calls, and the one line of result.
#pragma once

#include <cuda_runtime.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

class Program {
public:
    Program(const char *name, int argc, char **argv) {
        current() = name;
        large = argc > 1 && std::strcmp(argv[1], "large") == 0;
    }

    // Prints the result line and gives main its exit code.
    [[gnu::format(printf, 1, 2)]] static int pass(const char *format, ...) {
        std::va_list arguments;
        va_start(arguments, format);
        line("PASS", format, arguments);
        va_end(arguments);
        return 0;
    }

    // Prints the result line and ends the program.
    [[noreturn]] [[gnu::format(printf, 1, 2)]] static void fail(const char *format, ...) {
        std::va_list arguments;
        va_start(arguments, format);
        line("FAIL", format, arguments);
        va_end(arguments);
        std::exit(1);
    }

    static void check(cudaError_t error, const char *call, const char *file, int line) {
        if (error != cudaSuccess) {
            fail("%s:%d: %s: %s (%d): %s", file, line, call, cudaGetErrorName(error),
                 static_cast<int>(error), cudaGetErrorString(error));
        }
    }

    // Whether the real GPU's sizes were asked for (`program large`), not the interpreter's.
    bool large;

private:
    static const char *&current() {
        static const char *name = "?";
        return name;
    }

    static void line(const char *verdict, const char *format, std::va_list arguments) {
        std::printf("%s %s ", verdict, current());
        std::vprintf(format, arguments);
        std::printf("\n");
        std::fflush(stdout);
    }
};

#define CHECK(call) Program::check((call), #call, __FILE__, __LINE__)

// A launch reports a bad configuration at once and a failed kernel when it is waited for.
#define CHECK_KERNEL()             \
    do {                           \
        CHECK(cudaGetLastError()); \
        CHECK(cudaDeviceSynchronize()); \
    } while (0)

// The same pseudo-random word for the same index on both sides (Wang's integer hash).
__host__ __device__ __forceinline__ unsigned hash(unsigned word) {
    word = (word ^ 61u) ^ (word >> 16);
    word *= 9u;
    word ^= word >> 4;
    word *= 0x27d4eb2du;
    return word ^ (word >> 15);
}

// Uniform in [0, 1).
__host__ __device__ __forceinline__ float uniform(unsigned word) {
    return static_cast<float>(hash(word) >> 8) * (1.0f / 16777216.0f);
}
