// Machine code that comes after the device was first used: a file, or what is no more than the beginning of one and is refused.
#include "driver.h"
#include "program.h"

#include <cuda.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" __global__ void add_one(unsigned *words, unsigned count) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) words[at] += 1;
}

// A variable is loaded with its module ahead of need, and is no reason to stay.
__device__ unsigned variable = 5;

// Says whether a kernel may allocate so much.
__global__ void takes(size_t bytes, unsigned *word) {
    void *block = malloc(bytes);
    *word = block != nullptr && variable == 5;
    free(block);
}

static const unsigned COUNT = 1000;

static void check(const unsigned *words, unsigned wanted) {
    std::vector<unsigned> got(COUNT);
    CHECK(cudaMemcpy(got.data(), words, COUNT * sizeof *words, cudaMemcpyDeviceToHost));
    for (unsigned value : got)
        if (value != wanted) Program::fail("%u in place of %u", value, wanted);
}

int main(int argc, char **argv) {
    Program program("code_later", argc, argv);
    const char *path = argc > 1 && std::strcmp(argv[1], "large") != 0 ? argv[1] : nullptr;
    CHECK(cudaFree(nullptr));
    // Said before, and so afterwards.
    CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 64 << 20));
    unsigned char head[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    head[18] = 190;
    std::vector<char> image(head, head + sizeof head);
    if (path) {
        std::ifstream file(path, std::ios::binary);
        image.assign(std::istreambuf_iterator<char>(file), {});
    }
    DRIVER(cuModuleLoadData);
    DRIVER(cuModuleGetFunction);
    DRIVER(cuLaunchKernel);
    CUmodule module;
    CUresult loaded = cuModuleLoadData_(&module, image.data());
    if ((loaded == CUDA_SUCCESS) != (path != nullptr)) Program::fail("cuModuleLoadData gives %d", static_cast<int>(loaded));
    unsigned *words, count = COUNT;
    CHECK(cudaMalloc(&words, COUNT * sizeof *words));
    CHECK(cudaMemset(words, 0, COUNT * sizeof *words));
    add_one<<<4, 256>>>(words, COUNT);
    CHECK_KERNEL();
    check(words, 1);
    if (path) {
        CUfunction function;
        if (cuModuleGetFunction_(&function, module, "add_one") != CUDA_SUCCESS) Program::fail("there is no add_one");
        void *parameters[] = {&words, &count};
        if (cuLaunchKernel_(function, 4, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr) != CUDA_SUCCESS)
            Program::fail("it is not launched");
        CHECK_KERNEL();
        check(words, 2);
    }
    // Host memory has one address for both, wherever the process went on.
    unsigned *host, *managed, *seen;
    CHECK(cudaHostAlloc(&host, COUNT * sizeof *host, cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&seen, host, 0));
    CHECK(cudaMallocManaged(&managed, COUNT * sizeof *managed));
    if (seen != host) Program::fail("host memory has two addresses");
    for (unsigned *words : {host, managed}) {
        for (unsigned at = 0; at < COUNT; at++) words[at] = 7;
        add_one<<<4, 256>>>(words, COUNT);
        CHECK_KERNEL();
        for (unsigned at = 0; at < COUNT; at++)
            if (words[at] != 8) Program::fail("%u in place of 8", words[at]);
    }
    takes<<<1, 1>>>(32 << 20, host);
    CHECK_KERNEL();
    if (!*host) Program::fail("the heap is smaller than was said");
    CHECK(cudaFree(managed));
    CHECK(cudaFreeHost(host));
    // Here memory is there: what comes now stays where it is.
    if (cuModuleLoadData_(&module, head) == CUDA_SUCCESS) Program::fail("the beginning of a file is loaded");
    CHECK(cudaFree(words));
    return Program::pass("%s", path ? "machine code and PTX" : "PTX");
}
