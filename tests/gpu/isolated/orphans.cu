// To whom NVML counts memory that one process has made and another has imported, before and after its maker lets go of it.
//
//   nvcc -o orphans orphans.cu -lcuda -lnvidia-ml && ./orphans
//
// DESCRIPTOR_ONLY, IMPORTED_ONLY, MAPPED, KILLED in the environment: how far the importer has come when its maker lets go.
// HOLD: with the first of them, for how many seconds the descriptor is kept.
//
// One line for each step, in MiB: what the maker has, what the importer has, what is used of the device.
#include "common.h"

#include <nvml.h>

static const size_t BYTES = size_t(4) << 30;

// For what is no call of the driver's.
static void right(bool is_right, const char *what) {
    if (!is_right) die(what);
}

static CUmemAllocationProp properties() {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
}

static CUdeviceptr map(CUmemGenericAllocationHandle memory) {
    CUdeviceptr at;
    CUmemAccessDesc access = {};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    MUST(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
    MUST(cuMemMap(at, BYTES, 0, memory, 0));
    MUST(cuMemSetAccess(at, BYTES, &access, 1));
    return at;
}

static void step(int socket) {
    char byte = 0;
    right(write(socket, &byte, 1) == 1, "write");
    right(read(socket, &byte, 1) == 1, "read");
}
static void wait_for(int socket) {
    char byte;
    right(read(socket, &byte, 1) == 1, "read");
}
static void done(int socket) {
    char byte = 0;
    right(write(socket, &byte, 1) == 1, "write");
}

static void maker(int socket) {
    open_device();
    wait_for(socket), done(socket); // contexts alone
    CUmemGenericAllocationHandle memory;
    CUmemAllocationProp prop = properties();
    wait_for(socket);
    MUST(cuMemCreate(&memory, BYTES, &prop, 0));
    CUdeviceptr at = map(memory);
    done(socket); // made
    int descriptor;
    wait_for(socket);
    MUST(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_descriptor(socket, descriptor);
    close(descriptor);
    wait_for(socket);
    MUST(cuMemUnmap(at, BYTES));
    MUST(cuMemRelease(memory));
    done(socket); // given back
    wait_for(socket);
}

static void importer(int socket) {
    open_device();
    wait_for(socket), done(socket);
    wait_for(socket);
    int descriptor = receive_descriptor(socket);
    done(socket); // has the descriptor alone
    CUmemGenericAllocationHandle memory;
    wait_for(socket);
    MUST(cuMemImportFromShareableHandle(&memory, (void *)(size_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    done(socket); // imported
    wait_for(socket);
    CUdeviceptr at = map(memory);
    done(socket); // mapped
    wait_for(socket);
    MUST(cuMemUnmap(at, BYTES));
    done(socket); // unmapped, not released
    wait_for(socket);
    MUST(cuMemRelease(memory));
    done(socket); // released, and a descriptor left
    wait_for(socket);
    close(descriptor);
    done(socket);
    wait_for(socket);
}

static pid_t began(void (*what)(int), int *socket) {
    int pair[2];
    right(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        what(pair[1]);
        exit(0);
    }
    close(pair[1]);
    *socket = pair[0];
    return child;
}

int main() {
    setbuf(stdout, nullptr);
    int to_maker, to_importer;
    pid_t first = began(maker, &to_maker), second = began(importer, &to_importer);
    nvmlDevice_t device;
    right(nvmlInit_v2() == NVML_SUCCESS, "nvmlInit_v2");
    right(nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_SUCCESS, "nvmlDeviceGetHandleByIndex_v2");
    auto tell = [&](const char *what) {
        usleep(300 * 1000);
        nvmlProcessInfo_t infos[64];
        unsigned count = 64;
        right(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, infos) == NVML_SUCCESS, "nvmlDeviceGetComputeRunningProcesses_v3");
        long long of[2] = {-1, -1};
        for (unsigned i = 0; i < count; i++) {
            if (pid_t(infos[i].pid) == first) of[0] = infos[i].usedGpuMemory >> 20;
            if (pid_t(infos[i].pid) == second) of[1] = infos[i].usedGpuMemory >> 20;
        }
        nvmlMemory_t memory;
        right(nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS, "nvmlDeviceGetMemoryInfo");
        printf("%-60s %8lld %8lld %8lld\n", what, of[0], of[1], (long long)(memory.used >> 20));
    };
    printf("%-60s %8s %8s %8s\n", "MiB", "maker", "importer", "device");
    step(to_maker), step(to_importer), tell("contexts");
    step(to_maker), tell("4 GiB made and mapped");
    done(to_maker);
    int descriptor = receive_descriptor(to_maker);
    done(to_importer);
    send_descriptor(to_importer, descriptor);
    close(descriptor);
    wait_for(to_importer);
    tell("its descriptor passed, not imported");
    if (getenv("DESCRIPTOR_ONLY")) {
        step(to_maker), tell("the maker has given it back, the descriptor is there");
        if (const char *seconds = getenv("HOLD")) sleep(atoi(seconds));
        done(to_maker), waitpid(first, nullptr, 0), tell("the maker is gone");
    }
    step(to_importer), tell("imported, not mapped");
    if (getenv("IMPORTED_ONLY")) step(to_maker), tell("the maker has given it back");
    step(to_importer), tell("mapped");
    if (getenv("MAPPED")) {
        step(to_maker), tell("the maker has given it back");
        done(to_maker), waitpid(first, nullptr, 0), tell("the maker is gone");
    }
    if (getenv("KILLED")) {
        kill(first, 9), waitpid(first, nullptr, 0), tell("the maker was killed");
    }
    step(to_importer), tell("the importer has unmapped it");
    step(to_importer), tell("the importer has released it, and has the descriptor");
    step(to_importer), tell("the importer has closed the descriptor");
    kill(first, 9), kill(second, 9);
    while (wait(nullptr) > 0) {}
    tell("both are gone");
}
