// Question 1: what a launch of machine code costs with its parameters as a block, from a thread of its own, and from
// many threads.

#include "common.h"

constexpr int LAUNCHES = 50000, ROUNDS = 5;

struct Typical {
    CUdeviceptr a, b, c;
    Word size;
    float alpha;
    int mode;
};

static CUcontext context;
static CUfunction typical, big;
static CUkernel typical_kernel;
static Typical block;

static void by_block(CUfunction function, CUstream stream, void *bytes, size_t size) {
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, bytes, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    MUST(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, extra));
}

static void by_pointers(CUstream stream) {
    void *pointers[] = {&block.a, &block.b, &block.c, &block.size, &block.alpha, &block.mode};
    MUST(cuLaunchKernel(typical, 1, 1, 1, 32, 1, 1, 0, stream, pointers, nullptr));
}

static void by_configuration(CUstream stream) {
    size_t size = sizeof block;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    CUlaunchConfig configuration = {};
    configuration.gridDimX = configuration.gridDimY = configuration.gridDimZ = 1;
    configuration.blockDimX = 32, configuration.blockDimY = configuration.blockDimZ = 1;
    configuration.hStream = stream;
    configuration.attrs = &attribute, configuration.numAttrs = 1;
    MUST(cuLaunchKernelEx(&configuration, typical, nullptr, extra));
}

struct Times {
    std::vector<double> submit, whole;
};

template <typename Launch> static void measure(Times &times, CUstream stream, Launch one) {
    const double begun = now_us();
    for (int launch = 0; launch < LAUNCHES; launch++) one(stream);
    times.submit.push_back((now_us() - begun) / LAUNCHES);
    MUST(cuStreamSynchronize(stream));
    times.whole.push_back((now_us() - begun) / LAUNCHES);
}

template <typename Body> static void in_thread(Body body) {
    std::thread([&] {
        MUST(cuCtxSetCurrent(context));
        body();
    }).join();
}

static void many_threads() {
    double one = 0;
    std::string list;
    for (const int threads : {1, 2, 4, 8, 16}) {
        std::vector<double> rates;
        for (int round = 0; round < ROUNDS; round++) {
            std::atomic<int> ready{0};
            std::atomic<bool> go{false};
            std::vector<std::thread> all;
            for (int thread = 0; thread < threads; thread++)
                all.emplace_back([&] {
                    MUST(cuCtxSetCurrent(context));
                    const CUstream stream = new_stream();
                    for (int launch = 0; launch < 100; launch++) by_block(typical, stream, &block, sizeof block);
                    MUST(cuStreamSynchronize(stream));
                    ready++;
                    while (!go) __builtin_ia32_pause();
                    for (int launch = 0; launch < LAUNCHES / 5; launch++)
                        by_block(typical, stream, &block, sizeof block);
                    MUST(cuStreamSynchronize(stream));
                    MUST(cuStreamDestroy(stream));
                });
            while (ready < threads) __builtin_ia32_pause();
            const double begun = now_us();
            go = true;
            for (std::thread &thread : all) thread.join();
            rates.push_back(threads * (LAUNCHES / 5) / (now_us() - begun));
        }
        if (threads == 1)
            one = median(rates);
        else
            list += text("%s%d: %.2f", threads == 2 ? "" : ", ", threads, median(rates));
    }
    row(1, "launches/s of threads with own streams, one context", list + " M", text("one thread %.2f M", one));
}

// What a launch costs while another thread does something else, over and over.
static std::string beside(const char *what, std::function<void()> something) {
    const CUstream stream = new_stream();
    std::vector<double> alone, disturbed;
    for (int round = 0; round < ROUNDS; round++)
        for (std::vector<double> *numbers : {&alone, &disturbed}) {
            std::atomic<bool> stop{false}, runs{false};
            std::thread other;
            if (numbers == &disturbed) {
                other = std::thread([&] {
                    MUST(cuCtxSetCurrent(context));
                    runs = true;
                    while (!stop) something();
                });
                while (!runs) {
                }
            }
            const double begun = now_us();
            for (int launch = 0; launch < 5000; launch++) by_block(typical, stream, &block, sizeof block);
            numbers->push_back((now_us() - begun) / 5000);
            stop = true;
            if (other.joinable()) other.join();
            MUST(cuStreamSynchronize(stream));
        }
    return text("%s %.2f (alone %.2f)", what, median(disturbed), median(alone));
}

int main() {
    context = open_device();
    const CUmodule module = load_kernels();
    typical = kernel(module, "typical"), big = kernel(module, "large");
    CUlibrary library;
    const std::vector<char> image = kernels_image();
    MUST(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    MUST(cuLibraryGetKernel(&typical_kernel, library, "typical"));
    CUdeviceptr memory;
    MUST(cuMemAlloc(&memory, MIB));
    block = {memory, memory, memory, 16, 1.0f, 0};
    struct {
        Word words[128];
        CUdeviceptr out;
    } large_block = {{}, memory};
    const CUstream stream = new_stream();
    const std::vector<std::pair<const char *, std::function<void(CUstream)>>> ways = {
        {"pointers", by_pointers},
        {"block", [](CUstream on) { by_block(typical, on, &block, sizeof block); }},
        {"block, CUkernel", [](CUstream on) { by_block((CUfunction)typical_kernel, on, &block, sizeof block); }},
        {"block, LaunchKernelEx", by_configuration},
        {"block of 1 KiB", [&](CUstream on) { by_block(big, on, &large_block, sizeof large_block); }},
    };
    std::vector<Times> here(ways.size()), apart(ways.size());
    for (auto &way : ways)
        for (int launch = 0; launch < 100; launch++) way.second(stream);
    MUST(cuStreamSynchronize(stream));
    for (int round = 0; round < ROUNDS; round++)
        for (size_t way = 0; way < ways.size(); way++) {
            measure(here[way], stream, ways[way].second);
            in_thread([&] { measure(apart[way], stream, ways[way].second); });
        }
    for (size_t way = 0; way < ways.size(); way++)
        row(1, text("50,000 launches in a row, %s", ways[way].first),
            text("%.3f us in a thread", median(apart[way].whole)),
            text("main thread %.3f; submitting alone %.3f, %.3f us", median(here[way].whole), median(apart[way].submit),
                 median(here[way].submit)));
    many_threads();
    const CUstream other = new_stream();
    CUdeviceptr range;
    MUST(cuMemAddressReserve(&range, 64 * MIB, 0, 0, 0));
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED, properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    MUST(cuMemCreate(&handle, 2 * MIB, &properties, 0));
    std::string list = beside("cuStreamQuery", [&] { (void)cuStreamQuery(other); });
    const CUfunction spin = kernel(module, "spin");
    list += ", " + beside("synchronizes a stream whose kernel runs", [&] {
                launch(spin, other, 1, 1, Word{5000000});
                MUST(cuStreamSynchronize(other));
            });
    list += ", " + beside("maps and unmaps 2 MiB", [&] {
                MUST(cuMemMap(range, 2 * MIB, 0, handle, 0));
                MUST(cuMemSetAccess(range, 2 * MIB, &access, 1));
                MUST(cuMemUnmap(range, 2 * MIB));
            });
    list += ", " + beside("cuMemAlloc, cuMemFree", [&] {
                CUdeviceptr piece;
                MUST(cuMemAlloc(&piece, 4 * MIB));
                MUST(cuMemFree(piece));
            });
    row(1, "us of a launch while another thread calls", list, "over and over");
    return 0;
}
