// Units of PTX that the program links itself with cuLink*: in memory and from a file, twice, and what cannot be linked.
#include "driver.h"
#include "program.h"

#include <cuda.h>

#include <string>
#include <unistd.h>

static const char *head = ".version 8.0\n.target sm_80\n.address_size 64\n";
static const char *user =
    ".extern .func (.param .b32 r) twice(.param .b32 x);\n.extern .global .u32 bias;\n"
    ".visible .entry compute(.param .u64 out, .param .u32 x)\n{\n.reg .b32 %r<4>;\n.reg .b64 %rd<3>;\n"
    "ld.param.u64 %rd1, [out];\ncvta.to.global.u64 %rd2, %rd1;\nld.param.u32 %r1, [x];\n"
    "{\n.param .b32 p;\nst.param.b32 [p], %r1;\n.param .b32 q;\ncall.uni (q), twice, (p);\nld.param.b32 %r2, [q];\n}\n"
    "ld.global.u32 %r3, [bias];\nadd.u32 %r2, %r2, %r3;\nst.global.u32 [%rd2], %r2;\nret;\n}\n";
static const char *maker =
    ".visible .global .u32 bias = 1000;\n"
    ".visible .func (.param .b32 r) twice(.param .b32 x)\n{\n.reg .b32 %r<3>;\nld.param.b32 %r1, [x];\n"
    "add.u32 %r2, %r1, %r1;\nst.param.b32 [r], %r2;\nret;\n}\n";

static void good(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) Program::fail("%s gives %d", what, static_cast<int>(result));
}

int main(int argc, char **argv) {
    Program program("link_units", argc, argv);
    unsigned *out;
    CHECK(cudaMalloc(&out, sizeof *out));
    DRIVER(cuLinkCreate);
    DRIVER(cuLinkAddData);
    DRIVER(cuLinkAddFile);
    DRIVER(cuLinkComplete);
    DRIVER(cuLinkDestroy);
    DRIVER(cuModuleLoadData);
    DRIVER(cuModuleUnload);
    DRIVER(cuModuleGetFunction);
    DRIVER(cuLaunchKernel);
    std::string one = std::string(head) + user, two = std::string(head) + maker;
    char path[] = "/tmp/link_units_XXXXXX";
    int file = mkstemp(path);
    if (file < 0 || write(file, two.data(), two.size()) != static_cast<ssize_t>(two.size())) Program::fail("no file");
    close(file);
    char log[512] = "untouched";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    for (int round = 0; round < 2; ++round) {
        CUlinkState state;
        void *values[] = {log, reinterpret_cast<void *>(sizeof log)};
        good(cuLinkCreate_(2, options, values, &state), "cuLinkCreate");
        void *text = const_cast<char *>(one.c_str());
        good(cuLinkAddData_(state, CU_JIT_INPUT_PTX, text, one.size() + 1, "user.ptx", 0, nullptr, nullptr), "cuLinkAddData");
        good(cuLinkAddFile_(state, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr), "cuLinkAddFile");
        void *image = nullptr;
        size_t bytes = 0;
        good(cuLinkComplete_(state, &image, &bytes), "cuLinkComplete");
        if (!image || bytes == 0) Program::fail("no image");
        CUmodule module;
        good(cuModuleLoadData_(&module, image), "cuModuleLoadData");
        good(cuLinkDestroy_(state), "cuLinkDestroy");
        CUfunction function;
        good(cuModuleGetFunction_(&function, module, "compute"), "cuModuleGetFunction");
        unsigned x = 21 + round;
        void *arguments[] = {&out, &x};
        good(cuLaunchKernel_(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), "cuLaunchKernel");
        unsigned got = 0;
        CHECK(cudaMemcpy(&got, out, sizeof got, cudaMemcpyDeviceToHost));
        if (got != 2 * x + 1000) Program::fail("%u, not %u", got, 2 * x + 1000);
        good(cuModuleUnload_(module), "cuModuleUnload");
    }
    unlink(path);
    // A variable that nobody defines is an error that says so.
    CUlinkState state;
    void *values[] = {log, reinterpret_cast<void *>(sizeof log)};
    good(cuLinkCreate_(2, options, values, &state), "cuLinkCreate");
    for (const std::string *unit : {&one, &one}) {
        void *text = const_cast<char *>(unit->c_str());
        good(cuLinkAddData_(state, CU_JIT_INPUT_PTX, text, unit->size() + 1, "user.ptx", 0, nullptr, nullptr), "cuLinkAddData");
    }
    void *image = nullptr;
    size_t bytes = 0;
    CUresult result = cuLinkComplete_(state, &image, &bytes);
    if (result == CUDA_SUCCESS || std::strlen(log) == 0) Program::fail("what is defined twice is linked");
    good(cuLinkDestroy_(state), "cuLinkDestroy");
    CHECK(cudaFree(out));
    return Program::pass("2 links of 2 units");
}
