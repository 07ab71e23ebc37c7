// How long a confined text goes on once its session's flag is set, run natively with a window of its own:
// what a thread may do between two looks at the flag, in time.
//
//   nvcc -arch=native -o overdue overdue.cu -lcuda
//   ./overdue TEXT.ptx [BLOCKS [THREADS [GIB [host]]]]     2 blocks a multiprocessor of 1,024 threads, a window of 16 GiB,
//                                                          in host memory where that is said
//
// The window is full of random words, so that loads which wait for each other find nothing in a cache.
//
// TEXT is a confined text, as `bulkhead guard` prints it, or one that overdue.py writes; the first of its entries runs. Its 64-bit parameters get the window's
// beginning, its others 1 << 20. Where a cubin of the same name lies beside the text, that runs: large ones take minutes to assemble.
// Prints the milliseconds from when the flag is set to when the kernel has ended. Ends with 1 where something fails.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

static void check(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS) return;
    const char *name = "?";
    cuGetErrorName(result, &name);
    printf("FAIL %s: %s\n", what, name);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc < 2) return 1;
    std::ifstream file(argv[1]);
    std::stringstream text;
    text << file.rdbuf();
    std::string ptx = text.str();
    CUdevice device;
    CUcontext context;
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&context, device), "a context");
    check(cuCtxSetCurrent(context), "a context");
    int processors = 0;
    cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    unsigned blocks = argc > 2 && atoi(argv[2]) ? atoi(argv[2]) : 2 * processors;
    unsigned threads = argc > 3 && atoi(argv[3]) ? atoi(argv[3]) : 1024;
    size_t bytes = (argc > 4 ? atoi(argv[4]) : 16) * (size_t(1) << 30);
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device}, there = here;
    if (argc > 5 && !strcmp(argv[5], "host")) there = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    CUmemAllocationProp kind = {};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location = there;
    CUmemGenericAllocationHandle memory;
    CUdeviceptr window;
    check(cuMemAddressReserve(&window, bytes, bytes, 0, 0), "addresses");
    check(cuMemCreate(&memory, bytes, &kind, 0), "memory");
    check(cuMemMap(window, bytes, 0, memory, 0), "a mapping");
    CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    check(cuMemSetAccess(window, bytes, &access, 1), "access");
    std::vector<unsigned> words(size_t(64) << 20);
    unsigned random = 2463534242u;
    for (unsigned &word : words) {
        random ^= random << 13, random ^= random >> 17, random ^= random << 5;
        word = random;
    }
    for (size_t at = 0; at < bytes; at += 4 * words.size())
        check(cuMemcpyHtoD(window + at, words.data(), 4 * words.size()), "random words");
    check(cuMemsetD32(window + bytes - (64 << 10), 0, 16 << 10), "flags that are not set");
    CUmodule module;
    CUfunction entry;
    std::string assembled = std::string(argv[1]).substr(0, std::string(argv[1]).rfind('.')) + ".cubin";
    check(std::ifstream(assembled) ? cuModuleLoad(&module, assembled.c_str()) : cuModuleLoadData(&module, ptx.c_str()), "the text");
    size_t named = ptx.find(".visible .entry ") + 16;
    check(cuModuleGetFunction(&entry, module, ptx.substr(named, ptx.find('(', named) - named).c_str()), "its entry");
    unsigned base = window >> 32, mask = (bytes >> 32) - 1, other = 1 << 20;
    std::vector<void *> parameters;
    std::istringstream lines(ptx.substr(ptx.find(".visible .entry")));
    for (std::string line; std::getline(lines, line) && line != ")";) {
        if (line.find("__bh_base") != line.npos) parameters.push_back(&base);
        else if (line.find("__bh_load") != line.npos || line.find("__bh_store") != line.npos) parameters.push_back(&mask);
        else if (line.find(".param .u64") != line.npos) parameters.push_back(&window);
        else if (line.find(".param") != line.npos) parameters.push_back(&other);
    }
    const size_t flags = 64 << 10;  // The words of all multiprocessors.
    void *told;
    check(cuMemAllocHost(&told, flags), "host memory");
    memset(told, 0xff, flags);
    CUstream work, beside;
    check(cuStreamCreate(&work, CU_STREAM_NON_BLOCKING), "a stream");
    check(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING), "a stream");
    check(cuLaunchKernel(entry, blocks, 1, 1, threads, 1, 1, 0, work, parameters.data(), nullptr), "the launch");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    bool ran_on = cuStreamQuery(work) == CUDA_ERROR_NOT_READY;
    auto set = std::chrono::steady_clock::now();
    // Copied: a fill would wait for room on the device.
    check(cuMemcpyHtoDAsync(window + bytes - flags, told, flags, beside), "the flag");
    check(cuStreamSynchronize(beside), "the flag");
    check(cuStreamSynchronize(work), "the kernel");
    double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - set).count();
    const char *name = argv[1];
    for (const char *at = argv[1]; *at; at++)
        if (*at == '/') name = at + 1;
    printf("%-28s %4u x %4u  %s%10.1f ms\n", name, blocks, threads, ran_on ? "" : "(had ended) ", ms);
    return 0;
}
