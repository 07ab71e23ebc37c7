// What this machine is, and what it takes from a process's start to its first kernel.

#include "common.h"

static int first_kernel() {
    CUdevice device;
    CUcontext context;
    const double begun = now_us();
    MUST(cuInit(0));
    const double initialized = now_us();
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    const double created = now_us();
    const CUmodule module = load_kernels();
    const volatile Word *word = pinned_words(8);
    launch(kernel(module, "tell"), nullptr, 1, 1, address(word), Word{1});
    MUST(cuCtxSynchronize());
    const double ran = now_us();
    if (*word != 1) die("the kernel did not run");
    printf("%.3f %.3f %.3f\n", (initialized - begun) / 1e3, (created - initialized) / 1e3, (ran - created) / 1e3);
    fflush(stdout);
    return 0;
}

static void starts(const char *name) {
    std::vector<double> init, create, run, whole, process;
    for (int round = 0; round < 7; round++) {
        int from = -1;
        const double begun = now_us();
        const pid_t child = again({"one"}, &from);
        double parts[3];
        if (sscanf(line_of(from).c_str(), "%lf %lf %lf", parts, parts + 1, parts + 2) != 3) die("the child failed");
        whole.push_back((now_us() - begun) / 1e3);
        close(from);
        if (!ended_well(child)) die("the child failed");
        process.push_back((now_us() - begun) / 1e3);
        init.push_back(parts[0]), create.push_back(parts[1]), run.push_back(parts[2]);
    }
    row(0, text("process start to first kernel, %s", name), text("%.0f ms", median(whole)),
        text("cuInit %.0f, context %.0f, load and run %.1f; until its end %.0f ms", median(init), median(create),
             median(run), median(process)));
}

static std::string first_line(const char *path) {
    FILE *file = fopen(path, "r");
    char line[256] = "";
    if (!file) return "no file";
    if (!fgets(line, sizeof line, file)) line[0] = 0;
    fclose(file);
    line[strcspn(line, "\n")] = 0;
    return line;
}

int main(int count, char **) {
    if (count == 2) return first_kernel();
    starts("no other context");
    int from[2];
    if (pipe(from) != 0) die("pipe");
    const pid_t holder = in_child([&] {
        open_device();
        (void)!write(from[1], "\n", 1);
        pause();
    });
    (void)line_of(from[0]);
    starts("another process has a context");
    kill(holder, SIGKILL);
    waitpid(holder, nullptr, 0);

    open_device();
    CUdevice device;
    char of[128];
    int version;
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDeviceGetName(of, sizeof of, device));
    MUST(cuDriverGetVersion(&version));
    std::vector<double> create, run, destroy;
    const CUmodule first = load_kernels();
    const volatile Word *word = pinned_words(8);
    launch(kernel(first, "tell"), nullptr, 1, 1, address(word), Word{1});
    MUST(cuCtxSynchronize());
    for (int round = 0; round < 7; round++) {
        CUcontext own;
        create.push_back(took_us([&] { MUST(cuCtxCreate(&own, nullptr, 0, device)); }) / 1e3);
        run.push_back(took_us([&] {
                          const CUmodule module = load_kernels();
                          launch(kernel(module, "tell"), nullptr, 1, 1, address(word), Word{2});
                          MUST(cuCtxSynchronize());
                      }) /
                      1e3);
        destroy.push_back(took_us([&] { MUST(cuCtxDestroy(own)); }) / 1e3);
        MUST(cuCtxSetCurrent(nullptr));
    }
    row(0, "another context in a warm process", text("%.0f ms", median(create)),
        text("load and first kernel %.1f, destroy %.0f ms", median(run), median(destroy)));
    const struct {
        const char *name;
        CUdevice_attribute attribute;
    } attributes[] = {
        {"MPS", CU_DEVICE_ATTRIBUTE_MPS_ENABLED},
        {"pageable memory (HMM)", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
        {"concurrent managed", CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS},
        {"64-bit memory operations", CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS},
        {"wait NOR", CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR},
        {"64-bit, v1", CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1},
        {"preemption", CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED},
        {"fabric handles", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED},
        {"host NUMA VMM", CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
    };
    std::string list;
    for (const auto &one : attributes) {
        int value = -1;
        if (cuDeviceGetAttribute(&value, one.attribute, device) != CUDA_SUCCESS) value = -1;
        list += text("%s%s %d", list.empty() ? "" : ", ", one.name, value);
    }
    row(0, "attributes", list, text("%s, CUDA %d", of, version));
    row(0, "uvm_disable_hmm", first_line("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"),
        first_line("/proc/driver/nvidia/version"));
    return 0;
}
