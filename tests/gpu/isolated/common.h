// What the programs of this folder share: checked calls, medians, rows of the table, processes.
//
// A row is `row QUESTION<tab>QUANTITY<tab>VALUE<tab>COMPARISON` on stdout; anything else that a program prints is
// detail. Programs that want CUDA in several processes fork or start them before they call the driver.

#pragma once

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using Word = unsigned long long;
constexpr size_t KIB = size_t{1} << 10, MIB = size_t{1} << 20, GIB = size_t{1} << 30;

inline double now_us() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

inline const char *name(CUresult result) {
    const char *text = nullptr;
    if (cuGetErrorName(result, &text) != CUDA_SUCCESS || !text) text = "unknown error";
    return text;
}

[[noreturn]] inline void die(const char *what) {
    fflush(stdout);
    fprintf(stderr, "%s\n", what);
    fflush(stderr);
    _exit(1);
}

inline void must(CUresult result, const char *what, int line) {
    if (result == CUDA_SUCCESS) return;
    fflush(stdout);
    fprintf(stderr, "line %d: %s: %s\n", line, what, name(result));
    _exit(1);
}
#define MUST(call) must((call), #call, __LINE__)

inline std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));
inline std::string text(const char *format, ...) {
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    return line;
}

inline void row(int question, const std::string &quantity, const std::string &value, const std::string &comparison) {
    printf("row %d\t%s\t%s\t%s\n", question, quantity.c_str(), value.c_str(), comparison.c_str());
    fflush(stdout);
}

inline double at(std::vector<double> numbers, double part) {
    if (numbers.empty()) return -1;
    std::sort(numbers.begin(), numbers.end());
    return numbers[std::min(numbers.size() - 1, size_t(part * numbers.size()))];
}
inline double median(const std::vector<double> &numbers) { return at(numbers, 0.5); }

template <typename Call> double took_us(Call call) {
    const double begun = now_us();
    call();
    return now_us() - begun;
}

inline void pause_us(double us) {
    for (const double end = now_us() + us; now_us() < end;) __builtin_ia32_pause();
}

// Polls until a word has reached a value; false where it has not within that time.
inline bool reaches(const volatile Word *word, Word value, double limit_us = 5e6) {
    const double end = now_us() + limit_us;
    for (unsigned turn = 0; *word < value; turn++) {
        __builtin_ia32_pause();
        if ((turn & 1023) == 1023 && now_us() > end) return *word >= value;
    }
    return true;
}

// The device's primary context, current to the calling thread.
inline CUcontext open_device() {
    CUdevice device;
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    return context;
}

inline std::vector<char> kernels_image() {
    const char *path = getenv("ISOLATED_KERNELS");
    FILE *file = path ? fopen(path, "rb") : nullptr;
    if (!file) die("ISOLATED_KERNELS names no file");
    std::vector<char> image;
    char part[65536];
    for (size_t got; (got = fread(part, 1, sizeof part, file)) > 0;) image.insert(image.end(), part, part + got);
    fclose(file);
    return image;
}

inline CUmodule load_kernels() {
    CUmodule module;
    const std::vector<char> image = kernels_image();
    MUST(cuModuleLoadData(&module, image.data()));
    return module;
}

inline CUfunction kernel(CUmodule module, const char *of) {
    CUfunction function;
    MUST(cuModuleGetFunction(&function, module, of));
    return function;
}

inline CUstream new_stream() {
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

// Each argument has exactly the type of the kernel's parameter.
template <typename... Arguments>
void launch(CUfunction function, CUstream stream, unsigned blocks, unsigned threads, Arguments... arguments) {
    void *pointers[] = {&arguments..., nullptr};
    MUST(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, nullptr));
}

// Words of host memory that kernels and streams reach at the same address.
inline volatile Word *pinned_words(size_t count) {
    void *words;
    MUST(cuMemHostAlloc(&words, count * sizeof(Word), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    memset(words, 0, count * sizeof(Word));
    return (volatile Word *)words;
}
inline CUdeviceptr address(const volatile void *host) { return (CUdeviceptr)(uintptr_t)host; }

inline size_t free_bytes() {
    size_t available, total;
    MUST(cuMemGetInfo(&available, &total));
    return available;
}

// Memory that children share with their parent.
template <typename T> T *shared() {
    void *memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
    return new (memory) T();
}

// A child that ends with its parent.
template <typename Body> pid_t in_child(Body body) {
    fflush(stdout);
    const pid_t parent = getpid(), child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        body();
        fflush(stdout);
        _exit(0);
    }
    return child;
}

// This program anew, with other arguments; its output comes from `*output`.
inline pid_t again(const std::vector<std::string> &arguments, int *output) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) die("pipe2");
    std::vector<char *> list = {(char *)"/proc/self/exe"};
    for (const std::string &argument : arguments) list.push_back((char *)argument.c_str());
    list.push_back(nullptr);
    const pid_t child = in_child([&] {
        dup2(ends[1], 1);
        execv("/proc/self/exe", list.data());
        _exit(127);
    });
    close(ends[1]);
    *output = ends[0];
    return child;
}

// A line of a child's output, without its end; empty where there is none.
inline std::string line_of(int descriptor) {
    std::string line;
    for (char letter; read(descriptor, &letter, 1) == 1 && letter != '\n';) line += letter;
    return line;
}

// Whether the child ended by itself and well.
inline bool ended_well(pid_t child) {
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

inline void send_descriptor(int socket, int descriptor) {
    char nothing = 0, control[CMSG_SPACE(sizeof(int))] = {};
    iovec part = {&nothing, 1};
    msghdr message = {};
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    if (sendmsg(socket, &message, 0) != 1) die("sendmsg");
}

inline int receive_descriptor(int socket) {
    char nothing, control[CMSG_SPACE(sizeof(int))] = {};
    iovec part = {&nothing, 1};
    msghdr message = {};
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) die("recvmsg");
    const cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_type != SCM_RIGHTS) die("no descriptor came");
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return descriptor;
}
