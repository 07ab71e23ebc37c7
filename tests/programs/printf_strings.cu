// Strings that a kernel prints are what they were when it printed: in memory of every kind, and changed since.
#include "program.h"

__device__ char variable[16] = "variable";

__global__ void say(char *text) {
    __shared__ char shared[8];
    char local[8];
    for (int i = 0; i < 7; i++) {
        shared[i] = static_cast<char>('a' + i);
        local[i] = static_cast<char>('A' + (i + text[0]) % 26);
    }
    shared[7] = local[7] = 0;
    printf("%s, %d%% of %s, %-8s|%5.2f|%s|%s\n", text, 7, variable, shared, 1.5, local, static_cast<char *>(nullptr));
    text[0] = 'X';
    variable[0] = 'Y';
    shared[0] = local[0] = 'Z';
    printf("%s %s %lld %s %c %s%s\n", text, variable, 1ll << 40, shared, 'c', local, "");
}

__global__ void overwrite(char *text) { text[1] = variable[1] = '-'; }

__global__ void endless(const char *text) { printf("%.5s and %s\n", text, "more"); }

int main(int argc, char **argv) {
    const Program program("printf_strings", argc, argv);
    char *device, *managed;
    CHECK(cudaMalloc(&device, 16));
    CHECK(cudaMemcpy(device, "device", 7, cudaMemcpyHostToDevice));
    say<<<1, 1>>>(device);
    overwrite<<<1, 1>>>(device);
    CHECK_KERNEL();
    CHECK(cudaMallocManaged(&managed, 16));
    std::snprintf(managed, 16, "managed");
    for (const char *name : {"first", "second"}) {
        std::snprintf(managed, 16, "%s", name);
        say<<<1, 1>>>(managed);
        CHECK_KERNEL();
    }
    // No end within what is kept.
    char *large;
    CHECK(cudaMalloc(&large, 1 << 20));
    CHECK(cudaMemset(large, 'l', 1 << 20));
    endless<<<1, 2>>>(large);
    CHECK_KERNEL();
    for (char *memory : {device, managed, large}) CHECK(cudaFree(memory));
    return Program::pass("all of it above");
}
