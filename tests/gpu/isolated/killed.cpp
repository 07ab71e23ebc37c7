// Question 6: a process is killed while its kernel runs without end. When is its memory free, and does a neighbour
// notice?
//
//     killed few      idle, with a stream that waits, with a kernel of one block
//     killed many     with kernels on all SMs

#include "common.h"

#include <dlfcn.h>

constexpr int WAITS = -1; // instead of a number of blocks: no kernel, but a stream that waits on a word

struct Neighbour {
    std::atomic<bool> stop{false};
    std::atomic<Word> turns{0}, longest_us{0};
    std::atomic<int> result{0};
    char failed[64] = {};
};

static void neighbour(Neighbour &shared) {
    open_device();
    const CUmodule module = load_kernels();
    const CUfunction add = kernel(module, "add");
    const CUstream stream = new_stream();
    CUdeviceptr sum;
    MUST(cuMemAlloc(&sum, 8));
    MUST(cuMemsetD8(sum, 0, 8));
    for (Word turn = 1; !shared.stop; turn++) {
        const double begun = now_us();
        launch(add, stream, 1, 1, sum, Word{1});
        const CUresult result = cuStreamSynchronize(stream);
        if (result != CUDA_SUCCESS) {
            snprintf(shared.failed, sizeof shared.failed, "%s", name(result));
            shared.result = 1;
            return;
        }
        const Word us = Word(now_us() - begun);
        if (us > shared.longest_us) shared.longest_us = us;
        shared.turns = turn;
    }
    Word found;
    MUST(cuMemcpyDtoH(&found, sum, 8));
    if (found != shared.turns) shared.result = 2;
}

static int victim(size_t bytes, int blocks) {
    open_device();
    const CUmodule module = load_kernels();
    CUdeviceptr memory, flag;
    const volatile Word *running = pinned_words(8);
    MUST(cuMemAlloc(&memory, bytes));
    MUST(cuMemAlloc(&flag, 4096));
    MUST(cuMemsetD8(flag, 0, 4096));
    MUST(cuCtxSynchronize());
    const CUstream stream = new_stream();
    if (blocks == WAITS)
        MUST(cuStreamWaitValue64(stream, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    else if (blocks) {
        launch(kernel(module, "tell"), stream, 1, 1, address(running), Word{1});
        launch(kernel(module, "until"), stream, unsigned(blocks), 256, flag);
        if (!reaches(running, 1)) die("the kernel before did not run");
        usleep(50000);
    }
    printf("runs\n");
    fflush(stdout);
    pause();
    return 0;
}

// What NVML says is used of the first device's memory; 0 without NVML.
static Word used_by_nvml() {
    struct Memory {
        Word total, free, used;
    } memory = {};
    static void *device;
    static int (*info)(void *, Memory *);
    if (!info) {
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        if (!library) return 0;
        const auto init = (int (*)())dlsym(library, "nvmlInit_v2");
        const auto by_index = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
        if (!init || !by_index || init() != 0 || by_index(0, &device) != 0) return 0;
        info = (int (*)(void *, Memory *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    }
    return info && info(device, &memory) == 0 ? memory.used : 0;
}

int main(int count, char **arguments) {
    if (count == 3) return victim(strtoull(arguments[1], nullptr, 10), atoi(arguments[2]));
    Neighbour *beside = shared<Neighbour>();
    const pid_t other = in_child([&] { neighbour(*beside); });
    open_device();
    for (const double end = now_us() + 20e6; beside->turns < 1000 && now_us() < end;) usleep(1000);
    if (beside->turns < 1000) die("the neighbour does not run");
    const size_t most = free_bytes() / GIB * 9 / 10;
    struct {
        const char *name;
        size_t gib;
        int blocks;
    } cases[] = {{"idle, 16 GiB", 16, 0},
                 {"its stream waits on a word, 16 GiB", 16, WAITS},
                 {"endless kernel of one block, 16 GiB", 16, 1},
                 {"endless kernel on all SMs, 16 GiB", 16, 132 * 8},
                 {"endless on all SMs, 0.9 of memory", most, 132 * 8}};
    const bool many = count > 1 && !strcmp(arguments[1], "many");
    for (const auto &one : cases) {
        if (many != (one.blocks > 1)) continue;
        std::vector<double> reaped, available, nvml, before_us, after_us;
        bool came_back = true;
        for (int round = 0; round < 5 && came_back; round++) {
            const size_t before = free_bytes();
            const Word used_before = used_by_nvml();
            beside->longest_us = 0;
            int from = -1;
            const pid_t child = again({text("%zu", one.gib * GIB), text("%d", one.blocks)}, &from);
            if (line_of(from) != "runs") die("the victim does not run");
            close(from);
            beside->longest_us = 0;
            usleep(300000);
            before_us.push_back(double(beside->longest_us.exchange(0)));
            const double killed = now_us();
            kill(child, SIGKILL);
            double reaped_ms = -1, free_ms = -1, nvml_ms = -1;
            while (now_us() - killed < 8e6 && (reaped_ms < 0 || free_ms < 0 || nvml_ms < 0)) {
                if (reaped_ms < 0 && waitpid(child, nullptr, WNOHANG) == child) reaped_ms = (now_us() - killed) / 1e3;
                if (free_ms < 0 && free_bytes() + 16 * MIB >= before) free_ms = (now_us() - killed) / 1e3;
                if (nvml_ms < 0 && (!used_before || used_by_nvml() <= used_before + 16 * MIB))
                    nvml_ms = (now_us() - killed) / 1e3;
                usleep(1000);
            }
            usleep(100000);
            after_us.push_back(double(beside->longest_us));
            if (reaped_ms < 0) waitpid(child, nullptr, 0);
            came_back = free_ms >= 0;
            if (came_back)
                reaped.push_back(reaped_ms), available.push_back(free_ms), nvml.push_back(used_before ? nvml_ms : -1);
            printf("%s: reaped %.1f, free %.1f, NVML %.1f ms; neighbour's longest turn %.0f, then %.0f us\n", one.name,
                   reaped_ms, free_ms, nvml_ms, before_us.back(), after_us.back());
            fflush(stdout);
            if (beside->result) break;
        }
        row(6, text("killed: %s", one.name),
            came_back ? text("free after %.0f ms", median(available)) : "NOT FREE in 8 s",
            text("reaped %.0f, NVML %.0f ms; neighbour's longest turn before %.1f, then %.1f ms", median(reaped),
                 median(nvml), median(before_us) / 1e3, median(after_us) / 1e3));
        if (beside->result) break;
    }
    beside->stop = true;
    waitpid(other, nullptr, 0);
    row(6, text("the neighbour's context, beside the %s", many ? "latter" : "former"),
        beside->result == 0   ? "undisturbed"
        : beside->result == 1 ? beside->failed
                              : "WRONG sum",
        text("%llu launches", beside->turns.load()));
    return 0;
}
