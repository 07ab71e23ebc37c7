// Modules that are unloaded directly behind a launch: the kernel runs to its end.
#include "driver.h"
#include "program.h"

#include <cuda.h>

static const char *text =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry add(.param .u64 out)\n{\n.reg .pred %p<2>;\n.reg .b32 %r<4>;\n.reg .b64 %rd<3>;\n"
    "ld.param.u64 %rd1, [out];\ncvta.to.global.u64 %rd2, %rd1;\nmov.u32 %r1, 0;\n"
    "AGAIN:\nld.volatile.global.u32 %r2, [%rd2];\nadd.u32 %r2, %r2, 1;\nst.volatile.global.u32 [%rd2], %r2;\n"
    "add.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, 1000;\n@%p1 bra AGAIN;\nret;\n}\n";

static void good(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) Program::fail("%s gives %d", what, static_cast<int>(result));
}

int main(int argc, char **argv) {
    Program program("unload", argc, argv);
    DRIVER(cuModuleLoadData);
    DRIVER(cuModuleUnload);
    DRIVER(cuModuleGetFunction);
    DRIVER(cuLaunchKernel);
    unsigned *out;
    CHECK(cudaMalloc(&out, sizeof *out));
    CHECK(cudaMemset(out, 0, sizeof *out));
    const unsigned rounds = 30;
    for (unsigned round = 0; round < rounds; ++round) {
        CUmodule module;
        CUfunction function;
        good(cuModuleLoadData_(&module, text), "cuModuleLoadData");
        good(cuModuleGetFunction_(&function, module, "add"), "cuModuleGetFunction");
        void *arguments[] = {&out};
        good(cuLaunchKernel_(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr), "cuLaunchKernel");
        good(cuModuleUnload_(module), "cuModuleUnload");
        CHECK(cudaDeviceSynchronize());
    }
    unsigned got = 0;
    CHECK(cudaMemcpy(&got, out, sizeof got, cudaMemcpyDeviceToHost));
    if (got != rounds * 1000) Program::fail("%u, not %u", got, rounds * 1000);
    CHECK(cudaFree(out));
    return Program::pass("%u modules", rounds);
}
