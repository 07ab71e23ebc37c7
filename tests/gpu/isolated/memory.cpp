// Question 4: memory that another process made, imported by descriptor, against cuMemAlloc.
//
// The parent is the keeper: it makes memory and hands descriptors over. The child imports, maps, measures.

#include "common.h"

#include <dlfcn.h>
#include <sys/resource.h>

static CUmemAllocationProp properties() {
    CUmemAllocationProp made = {};
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    made.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    return made;
}

// ---- the keeper

enum class Ask : int { Make, Send, Release, Free, Largest };
struct Question {
    Ask ask;
    Word piece;
    int index;
};
struct Answer {
    Word value;
    double us;
};

static Word last_free;

static void keep(int socket) {
    open_device();
    const CUmemAllocationProp made = properties();
    std::vector<CUmemGenericAllocationHandle> handles;
    Question question;
    while (read(socket, &question, sizeof question) == sizeof question) {
        Answer answer = {};
        const double begun = now_us();
        switch (question.ask) {
        case Ask::Make:
            for (int piece = 0; piece < question.index; piece++) {
                CUmemGenericAllocationHandle handle;
                if (cuMemCreate(&handle, question.piece, &made, 0) != CUDA_SUCCESS) break;
                handles.push_back(handle);
                answer.value++;
            }
            break;
        case Ask::Send: {
            int descriptor;
            const CUmemGenericAllocationHandle handle = handles[handles.size() - 1 - question.index];
            MUST(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
            send_descriptor(socket, descriptor);
            close(descriptor);
            break;
        }
        case Ask::Release:
            for (const CUmemGenericAllocationHandle handle : handles) MUST(cuMemRelease(handle));
            handles.clear();
            break;
        case Ask::Free:
            answer.value = last_free = free_bytes();
            break;
        case Ask::Largest: {
            // In pages: the least that fails is above the most that works.
            Word works = 0, fails = free_bytes() / question.piece + 1;
            while (works + 1 < fails) {
                const Word middle = (works + fails) / 2;
                CUmemGenericAllocationHandle handle;
                if (cuMemCreate(&handle, middle * question.piece, &made, 0) == CUDA_SUCCESS) {
                    MUST(cuMemRelease(handle));
                    works = middle;
                } else
                    fails = middle;
            }
            answer.value = works * question.piece;
            break;
        }
        }
        answer.us = now_us() - begun;
        if (question.ask != Ask::Send && write(socket, &answer, sizeof answer) != sizeof answer) break;
    }
}

// ---- the importer

static int keeper;

static Answer ask(Ask what, Word piece = 0, int index = 0) {
    const Question question = {what, piece, index};
    Answer answer = {};
    if (write(keeper, &question, sizeof question) != sizeof question) die("the keeper is gone");
    if (what != Ask::Send && read(keeper, &answer, sizeof answer) != sizeof answer) die("the keeper is gone");
    return answer;
}

struct Range {
    std::string name;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    double make_us = 0, import_us = 0, map_us = 0, access_us = 0, unmap_us = 0;
    std::vector<CUmemGenericAllocationHandle> handles = {};
};

enum class From { Alloc, Own, Keeper };

static void map_at(Range &range, size_t piece) {
    MUST(cuMemAddressReserve(&range.base, range.bytes, 1 * GIB, 0, 0));
    range.map_us = took_us([&] {
        for (size_t index = 0; index < range.handles.size(); index++)
            MUST(cuMemMap(range.base + index * piece, piece, 0, range.handles[index], 0));
    });
    const CUmemAccessDesc access = {properties().location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    range.access_us = took_us([&] { MUST(cuMemSetAccess(range.base, range.bytes, &access, 1)); });
}

static Range make(const char *name, From from, size_t piece, size_t count) {
    Range range;
    range.name = name, range.bytes = piece * count;
    if (from == From::Alloc) {
        range.make_us = took_us([&] { MUST(cuMemAlloc(&range.base, range.bytes)); });
        return range;
    }
    const CUmemAllocationProp made = properties();
    range.handles.resize(count);
    if (from == From::Own)
        range.make_us = took_us([&] {
            for (CUmemGenericAllocationHandle &handle : range.handles) MUST(cuMemCreate(&handle, piece, &made, 0));
        });
    else {
        const Answer answer = ask(Ask::Make, piece, int(count));
        if (answer.value != count) die("the keeper made less");
        range.make_us = answer.us;
        range.import_us = took_us([&] {
            for (size_t index = 0; index < count; index++) {
                ask(Ask::Send, 0, int(index));
                const int descriptor = receive_descriptor(keeper);
                MUST(cuMemImportFromShareableHandle(&range.handles[index], (void *)(uintptr_t)descriptor,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
                close(descriptor);
            }
        });
    }
    map_at(range, piece);
    return range;
}

static void unmake(Range &range) {
    if (range.handles.empty())
        MUST(cuMemFree(range.base));
    else {
        range.unmap_us = took_us([&] { MUST(cuMemUnmap(range.base, range.bytes)); });
        for (const CUmemGenericAllocationHandle handle : range.handles) MUST(cuMemRelease(handle));
        MUST(cuMemAddressFree(range.base, range.bytes));
    }
}

static CUstream stream;
static CUevent begun, ended;

template <typename Work> static double device_ms(Work work) {
    float ms;
    MUST(cuEventRecord(begun, stream));
    work();
    MUST(cuEventRecord(ended, stream));
    MUST(cuEventSynchronize(ended));
    MUST(cuEventElapsedTime(&ms, begun, ended));
    return ms;
}

// cuBLAS, as PyTorch brings it; the kernel of this folder would not show what tensor cores ask of memory.
struct Blas {
    int (*create)(void **) = nullptr, (*set_stream)(void *, CUstream) = nullptr;
    int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                const void *, void *, int, int, int, int) = nullptr;
    void *handle = nullptr;
    bool ready() {
        const char *folder = getenv("ISOLATED_CUBLAS");
        if (!folder || !*folder) return false;
        if (!dlopen((std::string(folder) + "/libcublasLt.so.13").c_str(), RTLD_NOW | RTLD_GLOBAL))
            printf("%s\n", dlerror());
        void *library = dlopen((std::string(folder) + "/libcublas.so.13").c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (!library) return printf("%s\n", dlerror()), false;
        *(void **)&create = dlsym(library, "cublasCreate_v2");
        *(void **)&set_stream = dlsym(library, "cublasSetStream_v2");
        *(void **)&gemm = dlsym(library, "cublasGemmEx");
        return create && set_stream && gemm && create(&handle) == 0 && set_stream(handle, stream) == 0;
    }
    void multiply(CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, int size) {
        const float one = 1, zero = 0;
        constexpr int BF16 = 14, COMPUTE_32F = 68;
        if (gemm(handle, 0, 0, size, size, size, &one, (void *)a, BF16, size, (void *)b, BF16, size, &zero, (void *)c,
                 BF16, size, COMPUTE_32F, -1))
            die("cublasGemmEx");
    }
};

static void speed(CUmodule module) {
    constexpr size_t SIZE = 4 * GIB, HALF = SIZE / 2;
    constexpr int N = 8192;
    std::vector<Range> ranges = {make("cuMemAlloc", From::Alloc, SIZE, 1), make("own, one piece", From::Own, SIZE, 1),
                                 make("imported, one piece", From::Keeper, SIZE, 1),
                                 make("imported, 64 MiB pieces", From::Keeper, 64 * MIB, SIZE / (64 * MIB)),
                                 make("imported, 2 MiB pieces", From::Keeper, 2 * MIB, SIZE / (2 * MIB))};
    const CUfunction copy = kernel(module, "copy"), gather = kernel(module, "gather"),
                     random = kernel(module, "random_bf16");
    Blas blas;
    const bool multiplies = blas.ready();
    void *host;
    MUST(cuMemHostAlloc(&host, GIB, 0));
    std::vector<std::vector<double>> copies(ranges.size()), engine = copies, gathers = copies, products = copies,
                                                            up = copies;
    const CUdeviceptr result = ranges[0].base;
    for (int round = 0; round < 8; round++)
        for (size_t kind = 0; kind < ranges.size(); kind++) {
            const CUdeviceptr base = ranges[kind].base;
            double ms[5] = {};
            ms[0] = device_ms([&] { launch(copy, stream, 132 * 16, 512, base, base + HALF, Word{HALF / 16}); });
            ms[1] = device_ms([&] { MUST(cuMemcpyDtoDAsync(base, base + HALF, HALF, stream)); });
            ms[2] = device_ms([&] { launch(gather, stream, 132 * 8, 256, base, Word{SIZE / 8}, 256u, result); });
            ms[3] = device_ms([&] { MUST(cuMemcpyHtoDAsync(base, host, GIB, stream)); });
            if (multiplies) {
                constexpr size_t MATRIX = size_t{N} * N * 2;
                launch(random, stream, 132 * 8, 256, base, Word{MATRIX}, Word{1}); // two matrices
                ms[4] = device_ms([&] {
                            for (int times = 0; times < 5; times++)
                                blas.multiply(base, base + MATRIX, base + 2 * MATRIX, N);
                        }) /
                        5;
            }
            if (round == 0) continue;
            copies[kind].push_back(2.0 * HALF / ms[0] / 1e6), engine[kind].push_back(2.0 * HALF / ms[1] / 1e6);
            gathers[kind].push_back(132.0 * 8 * 256 * 256 / ms[2] / 1e6), up[kind].push_back(GIB / ms[3] / 1e6);
            if (multiplies) products[kind].push_back(2.0 * N * N * N / ms[4] / 1e9);
        }
    for (size_t kind = 0; kind < ranges.size(); kind++)
        row(4, text("%s: copy; bf16 8192 matmul", ranges[kind].name.c_str()),
            text("%.0f GB/s; %.0f TFLOP/s", median(copies[kind]), median(products[kind])),
            text("%.3fx, %.3fx cuMemAlloc; DtoD %.0f, HtoD %.1f GB/s; gather %.2f G/s (%.3fx)",
                 median(copies[kind]) / median(copies[0]), median(products[kind]) / median(products[0]),
                 median(engine[kind]), median(up[kind]), median(gathers[kind]),
                 median(gathers[kind]) / median(gathers[0])));
    if (!multiplies) printf("no cuBLAS\n");
    MUST(cuMemFreeHost(host));
    for (Range &range : ranges) unmake(range);
    ask(Ask::Release);
}

static void mapping() {
    for (const size_t piece : {2 * MIB, 64 * MIB, GIB}) {
        std::vector<double> times[6];
        for (int round = 0; round < 6; round++) {
            Range range = make("", From::Keeper, piece, GIB / piece);
            unmake(range);
            const Answer released = ask(Ask::Release);
            if (round == 0) continue;
            const double all[] = {range.make_us,   range.import_us, range.map_us,
                                  range.access_us, range.unmap_us,  released.us};
            for (int part = 0; part < 6; part++) times[part].push_back(all[part] / 1e3);
        }
        row(4, text("1 GiB imported in pieces of %zu MiB: map + access", piece / MIB),
            text("%.2f ms", median(times[2]) + median(times[3])),
            text("create %.2f, send + import %.2f, map %.2f, access %.2f, unmap %.2f, release %.2f ms",
                 median(times[0]), median(times[1]), median(times[2]), median(times[3]), median(times[4]),
                 median(times[5])));
    }
    std::vector<double> alloc, give;
    for (int round = 0; round < 6; round++) {
        Range range = make("", From::Alloc, GIB, 1);
        give.push_back(took_us([&] { unmake(range); }) / 1e3);
        alloc.push_back(range.make_us / 1e3);
    }
    row(4, "1 GiB by cuMemAlloc; cuMemFree", text("%.2f; %.2f ms", median(alloc), median(give)), "");
}

static void largest() {
    const size_t available = free_bytes();
    Word works = 0, fails = available / (2 * MIB) + 1;
    while (works + 1 < fails) {
        const Word middle = (works + fails) / 2;
        CUdeviceptr memory;
        if (cuMemAlloc(&memory, middle * 2 * MIB) == CUDA_SUCCESS) {
            MUST(cuMemFree(memory));
            works = middle;
        } else
            fails = middle;
    }
    const Word alloc = works * 2 * MIB, create = ask(Ask::Largest, 2 * MIB).value;
    row(4, "largest: cuMemCreate in the keeper", text("%.3f GiB", double(create) / GIB),
        text("cuMemAlloc %.3f, free %.3f GiB", double(alloc) / GIB, double(available) / GIB));
    Word sum = 0;
    std::string sums;
    for (const Word piece : {Word{GIB}, Word{64 * MIB}, Word{2 * MIB}}) {
        sum += piece * ask(Ask::Make, piece, 1 << 20).value;
        sums += text("%s%.3f", sums.empty() ? "" : ", ", double(sum) / GIB);
    }
    ask(Ask::Release);
    row(4, "largest sum of pieces: of 1 GiB, then 64, then 2 MiB", sums + " GiB",
        text("%.4fx cuMemAlloc's largest", double(sum) / alloc));
    Range range = make("", From::Keeper, create, 1);
    row(4, "the largest, imported and mapped", text("%.1f ms", (range.map_us + range.access_us) / 1e3),
        text("made in %.1f ms", range.make_us / 1e3));
    unmake(range);
    ask(Ask::Release);
}

// When memory is free that two processes hold; `child` dies holding it.
static void held(double gib_before) {
    const auto gib = [] { return double(ask(Ask::Free).value) / GIB; };
    Range range = make("", From::Keeper, 8 * GIB, 1);
    const double mapped = gib();
    ask(Ask::Release);
    const double released = gib();
    MUST(cuMemUnmap(range.base, range.bytes));
    const double unmapped = gib();
    MUST(cuMemRelease(range.handles[0]));
    const double dropped = gib();
    row(4, "8 GiB taken from what is free: both hold it", text("%.2f GiB", gib_before - mapped),
        text("keeper released %.2f, importer unmapped %.2f, and released %.2f", gib_before - released,
             gib_before - unmapped, gib_before - dropped));
    Range last = make("", From::Keeper, 8 * GIB, 1);
    ask(Ask::Release);
    ask(Ask::Free);
    raise(SIGKILL);
}

static void import(int socket) {
    keeper = socket;
    const rlimit many = {65536, 65536};
    setrlimit(RLIMIT_NOFILE, &many);
    open_device();
    stream = new_stream();
    MUST(cuEventCreate(&begun, 0));
    MUST(cuEventCreate(&ended, 0));
    const CUmemAllocationProp made = properties();
    size_t least, recommended;
    MUST(cuMemGetAllocationGranularity(&least, &made, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    MUST(cuMemGetAllocationGranularity(&recommended, &made, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    row(4, "granularity, recommended", text("%zu MiB", recommended / MIB), text("minimum %zu MiB", least / MIB));
    const CUmodule module = load_kernels();
    mapping();
    speed(module);
    largest();
    held(double(ask(Ask::Free).value) / GIB);
}

int main() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) die("socketpair");
    const pid_t child = in_child([&] {
        close(ends[0]);
        import(ends[1]);
    });
    close(ends[1]);
    keep(ends[0]); // until the importer dies
    const double died = now_us();
    int status = 0;
    waitpid(child, &status, 0);
    size_t last = last_free;
    double changed = died;
    for (const double end = now_us() + 3e6; now_us() < end; usleep(2000)) {
        const size_t current = free_bytes();
        if (current != last) last = current, changed = now_us();
    }
    if (!WIFSIGNALED(status)) die("the importer failed");
    row(4, "importer killed that alone held 8 GiB, and its context",
        text("%.2f GiB came back", (double(last) - double(last_free)) / GIB),
        text("last change %.0f ms after its socket closed; free %.2f GiB", (changed - died) / 1e3, double(last) / GIB));
    return 0;
}
