// For question 7: goes through the stages of a context's life. Prints each stage's name and milliseconds, and waits for
// a line.

#include "common.h"

static void stage(const char *of, std::function<void()> body) {
    const double ms = took_us(body) / 1e3;
    printf("%s\t%.1f\n", of, ms);
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof line, stdin)) exit(0);
}

int main() {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUstream stream;
    std::vector<CUstream> streams;
    const volatile Word *word;
    stage("cuInit", [&] { MUST(cuInit(0)), MUST(cuDeviceGet(&device, 0)); });
    stage("context", [&] { MUST(cuDevicePrimaryCtxRetain(&context, device)), MUST(cuCtxSetCurrent(context)); });
    stage("module of 10 kernels, pinned page", [&] { module = load_kernels(), word = pinned_words(8); });
    stage("first kernel", [&] {
        stream = new_stream();
        launch(kernel(module, "tell"), stream, 1, 1, address(word), Word{1});
        MUST(cuStreamSynchronize(stream));
    });
    stage("128 streams, each used", [&] {
        for (int one = 0; one < 128; one++) {
            streams.push_back(new_stream());
            launch(kernel(module, "tell"), streams.back(), 1, 1, address(word), Word{1});
        }
        MUST(cuCtxSynchronize());
    });
    stage("another 128 streams, each used", [&] {
        for (int one = 0; one < 128; one++) {
            streams.push_back(new_stream());
            launch(kernel(module, "tell"), streams.back(), 1, 1, address(word), Word{1});
        }
        MUST(cuCtxSynchronize());
    });
    stage("stack of 16 KiB a thread", [&] {
        MUST(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 16 * KIB));
        launch(kernel(module, "tell"), stream, 1, 1, address(word), Word{1});
        MUST(cuCtxSynchronize());
    });
    stage("1 GiB by cuMemAlloc", [] {
        CUdeviceptr memory;
        MUST(cuMemAlloc(&memory, GIB));
    });
    return 0;
}
