// Question 3: waits of streams, on words and on events: what they take, and what they hold up.
//
//     waits            everything
//     waits held       only how many streams one or more waiting streams hold up (for other values of
//     CUDA_DEVICE_MAX_CONNECTIONS)

#include "common.h"

static CUcontext context;
static CUfunction tell, spin;
static CUmodule module;
static volatile Word *words; // GO, MARK, DONE on lines of their own; then one for each stream
constexpr int GO = 0, MARK = 16, DONE = 32, EACH = 64;
static Word turn;

static void write_word(CUstream stream, CUdeviceptr where, Word value) {
    MUST(cuStreamWriteValue64(stream, where, value, 0));
}
static void wait_word(CUstream stream, CUdeviceptr where, Word value) {
    MUST(cuStreamWaitValue64(stream, where, value, CU_STREAM_WAIT_VALUE_GEQ));
}
static void told(CUstream stream, int word) { launch(tell, stream, 1, 1, address(words + word), turn); }

struct Path {
    const char *name;
    std::function<void()> prepare;       // queues what waits for GO
    std::function<void()> after = [] {}; // done by the host once GO is written
    std::vector<double> us = {};
};

static void latencies() {
    const CUstream a = new_stream(), b = new_stream();
    CUdeviceptr device;
    CUevent event;
    MUST(cuMemAlloc(&device, 4096));
    MUST(cuMemsetD8(device, 0, 4096));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    const auto begins = [&] { wait_word(a, address(words + GO), turn); };
    std::vector<Path> paths = {
        {"the host launches a kernel", [] {}, [&] { told(a, DONE); }},
        {"wait on a host word, kernel", [&] { begins(), told(a, DONE); }},
        {"the same, another kernel behind it", [&] { begins(), told(a, MARK), told(a, DONE); }},
        {"hop by event",
         [&] {
             begins(), told(a, MARK);
             MUST(cuEventRecord(event, a));
             MUST(cuStreamWaitEvent(b, event, 0));
             told(b, DONE);
         }},
        {"hop by a device word, written by the stream",
         [&] {
             begins(), told(a, MARK), write_word(a, device, turn);
             wait_word(b, device, turn), told(b, DONE);
         }},
        {"hop by a device word, written by the kernel",
         [&] {
             begins(), launch(tell, a, 1, 1, device + 256, turn);
             wait_word(b, device + 256, turn), told(b, DONE);
         }},
        {"hop by a host word, written by the stream",
         [&] {
             begins(), told(a, EACH), write_word(a, address(words + MARK), turn);
             wait_word(b, address(words + MARK), turn), told(b, DONE);
         }},
        {"hop by a polling host that launches",
         [&] { begins(), told(a, EACH), write_word(a, address(words + MARK), turn); },
         [&] {
             if (!reaches(words + MARK, turn)) die("the mark did not come");
             told(b, DONE);
         }},
    };
    for (int round = 0; round < 1000; round++)
        for (Path &path : paths) {
            turn++;
            path.prepare();
            pause_us(30);
            const double begun = now_us();
            words[GO] = turn;
            path.after();
            if (!reaches(words + DONE, turn)) die(path.name);
            if (round >= 20) path.us.push_back(now_us() - begun);
        }
    for (size_t path = 0; path < paths.size(); path++) {
        const double base = median(paths[path < 3 ? 0 : 2].us);
        row(3, paths[path].name, text("%.2f us (p99 %.1f)", median(paths[path].us), at(paths[path].us, 0.99)),
            path == 0 ? "until the host sees its store"
                      : text("%+.2f us to %s", median(paths[path].us) - base,
                             path < 3 ? "a launch" : "one stream with two kernels"));
    }
    // What the calls themselves cost the host. Nothing waits: the values were reached.
    struct {
        const char *name;
        std::function<void()> call;
        std::vector<double> us = {};
    } calls[] = {
        {"WaitValue64", [&] { wait_word(a, device, 0); }},
        {"WriteValue64", [&] { write_word(a, device + 512, 1); }},
        {"EventRecord", [&] { MUST(cuEventRecord(event, a)); }},
        {"WaitEvent, other stream", [&] { MUST(cuStreamWaitEvent(b, event, 0)); }},
    };
    for (int round = 0; round < 7; round++)
        for (auto &call : calls) {
            call.us.push_back(took_us([&] {
                                  for (int turns = 0; turns < 500; turns++) call.call();
                              }) /
                              500);
            MUST(cuStreamSynchronize(a));
            MUST(cuStreamSynchronize(b));
        }
    std::string list;
    for (auto &call : calls) list += text("%s%s %.2f", list.empty() ? "" : ", ", call.name, median(call.us));
    row(3, "calls, us each", list, "500 in a row");
}

// Of 64 streams some wait for a word; how many of the others don't get a kernel done meanwhile.
static void held_up(bool on_device) {
    constexpr int STREAMS = 64;
    std::vector<CUstream> streams;
    for (int stream = 0; stream < STREAMS; stream++) streams.push_back(new_stream());
    CUdeviceptr device;
    MUST(cuMemAlloc(&device, 4096));
    MUST(cuMemsetD8(device, 0, 4096));
    std::string list;
    for (const int waiting : {1, 8, 32}) {
        turn++;
        for (int stream = 0; stream < waiting; stream++) {
            wait_word(streams[stream], on_device ? device : address(words + GO), turn);
            told(streams[stream], EACH + stream);
        }
        for (int stream = waiting; stream < STREAMS; stream++) told(streams[stream], EACH + stream);
        const double end = now_us() + 300e3;
        int held = 0, free_one = -1;
        do {
            held = 0;
            for (int stream = waiting; stream < STREAMS; stream++) {
                if (words[EACH + stream] != turn)
                    held++;
                else
                    free_one = stream;
            }
        } while (held && now_us() < end);
        list += text("%s%d of %d beside %d", list.empty() ? "" : ", ", held, STREAMS - waiting, waiting);
        if (on_device && free_one < 0) {
            row(3,
                text("held up by waits on a device word (connections: %s)",
                     getenv("CUDA_DEVICE_MAX_CONNECTIONS") ?: "default"),
                list, "all: gave up");
            _exit(0);
        }
        if (on_device) write_word(streams[free_one], device, turn);
        words[GO] = turn;
        for (int stream = 0; stream < STREAMS; stream++)
            if (!reaches(words + EACH + stream, turn)) die("a stream did not go on once its word was written");
    }
    row(3, text("streams held up by waits on a %s word", on_device ? "device" : "host"), list,
        text("CUDA_DEVICE_MAX_CONNECTIONS %s", getenv("CUDA_DEVICE_MAX_CONNECTIONS") ?: "default"));
}

// Which calls wait until a stream that waits on a host word goes on.
static void calls_beside() {
    const CUstream waiting = new_stream(), other = new_stream();
    const std::vector<char> image = kernels_image();
    CUdeviceptr memory, small, range;
    CUmodule loaded = nullptr;
    CUmemGenericAllocationHandle handle = 0;
    void *host = nullptr, *pages = mmap(nullptr, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec executable = nullptr;
    CUstream made = nullptr;
    Word value = 0;
    CUdeviceptr to = address(words + MARK);
    void *pointers[] = {&to, &value};
    CUDA_KERNEL_NODE_PARAMS parameters = {};
    parameters.func = tell, parameters.kernelParams = pointers;
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddKernelNode(&node, graph, nullptr, 0, &parameters));
    MUST(cuMemAlloc(&small, 4096));
    MUST(cuMemAddressReserve(&range, 64 * MIB, 0, 0, 0));
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED, properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const std::vector<std::pair<const char *, std::function<void()>>> calls = {
        {"kernel in another stream, synchronized",
         [&] {
             launch(tell, other, 1, 1, to, value);
             MUST(cuStreamSynchronize(other));
         }},
        {"cuMemcpyDtoH of 8 bytes", [&] { MUST(cuMemcpyDtoH(&value, small, 8)); }},
        {"cuMemcpyDtoHAsync and its stream",
         [&] {
             MUST(cuMemcpyDtoHAsync((void *)(words + MARK), small, 8, other));
             MUST(cuStreamSynchronize(other));
         }},
        {"cuMemAlloc", [&] { MUST(cuMemAlloc(&memory, 64 * MIB)); }},
        {"cuMemFree", [&] { MUST(cuMemFree(memory)); }},
        {"cuMemHostAlloc", [&] { MUST(cuMemHostAlloc(&host, MIB, 0)); }},
        {"cuMemFreeHost", [&] { MUST(cuMemFreeHost(host)); }},
        {"cuMemHostRegister", [&] { MUST(cuMemHostRegister(pages, 2 * MIB, 0)); }},
        {"cuMemHostUnregister", [&] { MUST(cuMemHostUnregister(pages)); }},
        {"create, map, access",
         [&] {
             MUST(cuMemCreate(&handle, 2 * MIB, &properties, 0));
             MUST(cuMemMap(range, 2 * MIB, 0, handle, 0));
             MUST(cuMemSetAccess(range, 2 * MIB, &access, 1));
         }},
        {"unmap, release",
         [&] {
             MUST(cuMemUnmap(range, 2 * MIB));
             MUST(cuMemRelease(handle));
         }},
        {"cuModuleLoadData", [&] { MUST(cuModuleLoadData(&loaded, image.data())); }},
        {"cuModuleUnload", [&] { MUST(cuModuleUnload(loaded)); }},
        {"cuStreamCreate", [&] { MUST(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING)); }},
        {"cuStreamDestroy", [&] { MUST(cuStreamDestroy(made)); }},
        {"cuGraphInstantiate", [&] { MUST(cuGraphInstantiate(&executable, graph, 0)); }},
        {"cuGraphLaunch, synchronized",
         [&] {
             MUST(cuGraphLaunch(executable, other));
             MUST(cuStreamSynchronize(other));
         }},
        {"cuGraphExecDestroy", [&] { MUST(cuGraphExecDestroy(executable)); }},
        {"cuMemAllocAsync, cuMemFreeAsync",
         [&] {
             MUST(cuMemAllocAsync(&memory, MIB, other));
             MUST(cuMemFreeAsync(memory, other));
             MUST(cuStreamSynchronize(other));
         }},
        {"cuCtxSynchronize", [&] { MUST(cuCtxSynchronize()); }},
    };
    std::string waits, goes;
    for (const auto &call : calls) {
        turn++;
        wait_word(waiting, address(words + GO), turn);
        told(waiting, DONE);
        std::atomic<bool> done{false};
        double us = 0;
        std::thread caller([&] {
            MUST(cuCtxSetCurrent(context));
            us = took_us(call.second);
            done = true;
        });
        const double end = now_us() + 200e3;
        while (!done && now_us() < end) {
        }
        const bool in_time = done;
        words[GO] = turn;
        caller.join();
        if (!reaches(words + DONE, turn)) die("the waiting stream did not go on");
        printf("beside a waiting stream: %s: %s\n", call.first, in_time ? text("%.1f us", us).c_str() : "waits");
        (in_time ? goes : waits) += text("%s%s", (in_time ? goes : waits).empty() ? "" : ", ", call.first);
    }
    row(3, "calls that wait for a stream that waits on a host word", waits.empty() ? "none" : waits,
        text("%zu tried", calls.size()));
}

// Whether a waiting context takes time from another process.
struct Other {
    std::atomic<int> phase{0}, done{0};
    double launch_us[4] = {}, spins_ms[4] = {};
};

static void other_process(Other &other) {
    open_device();
    const CUmodule own = load_kernels();
    const CUfunction own_tell = kernel(own, "tell"), own_spin = kernel(own, "spin");
    const CUstream stream = new_stream();
    const volatile Word *word = pinned_words(8);
    for (int phase = 1; phase <= 4; phase++) {
        while (other.phase < phase) usleep(500);
        std::vector<double> us, ms;
        for (int round = 0; round < 1000; round++)
            us.push_back(took_us([&] {
                launch(own_tell, stream, 1, 1, address(word), Word{1});
                MUST(cuStreamSynchronize(stream));
            }));
        for (int round = 0; round < 5; round++)
            ms.push_back(took_us([&] {
                             for (int spins = 0; spins < 100; spins++) launch(own_spin, stream, 132, 128, Word{200000});
                             MUST(cuStreamSynchronize(stream));
                         }) /
                         1e3);
        other.launch_us[phase - 1] = median(us), other.spins_ms[phase - 1] = median(ms);
        other.done = phase;
    }
}

static void beside_a_process(Other &other) {
    const CUstream stream = new_stream();
    CUdeviceptr flag;
    MUST(cuMemAlloc(&flag, 4096));
    const CUfunction until = kernel(module, "until");
    const char *names[] = {"idle", "waiting on a host word", "waiting on a device word", "running a kernel"};
    std::vector<CUstream> writers;
    for (int writer = 0; writer < 32; writer++) writers.push_back(new_stream());
    for (int phase = 1; phase <= 4; phase++) {
        turn++;
        MUST(cuMemsetD8(flag, 0, 4096));
        if (phase == 2) wait_word(stream, address(words + GO), turn);
        if (phase == 3) wait_word(stream, flag, turn);
        words[MARK] = 0;
        if (phase == 4) launch(until, stream, 1, 1, address(words + MARK));
        other.phase = phase;
        for (const double end = now_us() + 12e6; other.done < phase && now_us() < end;) usleep(500);
        words[GO] = turn, words[MARK] = 1;
        // A stream that shares its connection with the waiting one could not write.
        for (size_t writer = 0; phase == 3 && writer < writers.size(); writer++) {
            told(writers[writer], EACH);
            if (!reaches(words + EACH, turn, 50e3)) continue;
            write_word(writers[writer], flag, turn);
            break;
        }
        MUST(cuStreamSynchronize(stream));
        row(3, text("another process, while this one is %s", names[phase - 1]),
            other.done < phase ? "nothing in 12 s" : text("launch+sync %.1f us", other.launch_us[phase - 1]),
            text("100 kernels of 200 us on all SMs: %.1f ms", other.spins_ms[phase - 1]));
        if (other.done < phase) return;
    }
}

int main(int count, char **arguments) {
    const bool only_held = count > 1 && !strcmp(arguments[1], "held");
    Other *other = shared<Other>();
    const pid_t child = only_held ? 0 : in_child([&] { other_process(*other); });
    context = open_device();
    module = load_kernels();
    tell = kernel(module, "tell"), spin = kernel(module, "spin");
    words = pinned_words(4096);
    const CUstream stream = new_stream();
    told(stream, DONE);
    launch(spin, stream, 1, 1, Word{1000});
    MUST(cuStreamSynchronize(stream));
    if (!only_held) {
        latencies();
        calls_beside();
    }
    held_up(false);
    if (!only_held) beside_a_process(*other);
    held_up(true);
    if (child) kill(child, SIGKILL);
    return 0;
}
