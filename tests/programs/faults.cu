// Assertions that fail, traps and breakpoints: the program sees CUDA's sticky error, and nobody else sees anything.
// nvcc: -lineinfo
#include "program.h"

#include <cassert>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

constexpr int N = 1024;

__global__ void square(unsigned *values, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = i * i;
}

__global__ void asserts(unsigned *values) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(i != 133);
    values[i] = 1;
}

__device__ __noinline__ void give_up() { asm volatile("trap;"); }

__global__ void traps(unsigned *values) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 77) give_up();
    values[i] = 1;
}

__global__ void breaks(unsigned *values) {
    if (values != nullptr && threadIdx.x == 1) asm volatile("brkpt;");
}

// All wait for one that never gets there.
__global__ void waits(volatile unsigned *values) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (values[1] != 77) __trap();
        values[0] = 77;
    }
    while (values[0] != 77) {
    }
}

// A storm: every thread of a large grid.
__global__ void storms() { __trap(); }

struct Kind {
    const char *name;
    cudaError_t expected;
};

constexpr Kind kinds[] = {
    {"assert", cudaErrorAssert},       {"trap", cudaErrorLaunchFailure},  {"brkpt", cudaErrorLaunchFailure},
    {"wait", cudaErrorLaunchFailure}, {"storm", cudaErrorLaunchFailure},
};

static void expect(const char *what, cudaError_t got, cudaError_t expected) {
    if (got != expected) {
        Program::fail("%s: %s (%d), not %s (%d)", what, cudaGetErrorName(got), static_cast<int>(got),
                      cudaGetErrorName(expected), static_cast<int>(expected));
    }
}

static int one(const Program &program, const Kind &kind) {
    unsigned *values, *more;
    CHECK(cudaMalloc(&values, N * sizeof(unsigned)));
    CHECK(cudaMemset(values, 0, N * sizeof(unsigned)));
    square<<<N / 64, 64>>>(values, N);
    CHECK_KERNEL();
    CHECK(cudaMemset(values, 0, N * sizeof(unsigned)));
    CHECK(cudaDeviceSynchronize());
    switch (kind.name[0]) {
    case 'a': asserts<<<N / 64, 64>>>(values); break;
    case 't': traps<<<N / 64, 64>>>(values); break;
    case 'b': breaks<<<1, 64>>>(values); break;
    case 'w': waits<<<2, 64>>>(values); break;
    default: storms<<<program.large ? 1 << 20 : 64, 256>>>(); break;
    }
    CHECK(cudaGetLastError());
    expect("the wait", cudaDeviceSynchronize(), kind.expected);
    expect("the wait after it", cudaDeviceSynchronize(), kind.expected);
    expect("cudaMalloc", cudaMalloc(&more, 64), kind.expected);
    unsigned word;
    expect("cudaMemcpy", cudaMemcpy(&word, values, sizeof word, cudaMemcpyDeviceToHost), kind.expected);
    expect("the last error", cudaGetLastError(), kind.expected);
    return Program::pass("%s is %s", kind.name, cudaGetErrorName(kind.expected));
}

// Each kind in a process of its own, while this one has results to keep.
static int all(const Program &program, const char *size) {
    pid_t children[sizeof kinds / sizeof *kinds];
    unsigned *values;
    std::vector<unsigned> host(N);
    CHECK(cudaMalloc(&values, N * sizeof(unsigned)));
    square<<<N / 64, 64>>>(values, N);
    CHECK_KERNEL();
    int started = 0;
    for (const Kind &kind : kinds) {
        const pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", "faults", size, kind.name, static_cast<char *>(nullptr));
            _exit(127);
        }
        children[started++] = child;
    }
    int failed = 0;
    for (int i = 0; i < started; i++) {
        int status = 0;
        if (waitpid(children[i], &status, 0) != children[i] || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            std::printf("%s: status %d\n", kinds[i].name, status);
            failed++;
        }
    }
    CHECK(cudaMemcpy(host.data(), values, N * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < N; i++) {
        if (host[i] != i * i) Program::fail("values[%u] = %u, not %u", i, host[i], i * i);
    }
    square<<<N / 64, 64>>>(values, N);
    CHECK_KERNEL();
    if (failed > 0) Program::fail("%d of %d kinds", failed, started);
    return Program::pass("%d kinds, each with its error, beside a process that goes on", started);
}

int main(int argc, char **argv) {
    const Program program("faults", argc, argv);
    if (argc > 2) {
        for (const Kind &kind : kinds) {
            if (std::strcmp(argv[2], kind.name) == 0) return one(program, kind);
        }
        Program::fail("no kind %s", argv[2]);
    }
    return all(program, program.large ? "large" : "small");
}
