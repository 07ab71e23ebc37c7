// printf where the module's strings lie in host memory, since it has a managed variable; and strings in memory of either kind.
#include "program.h"

#include <cstring>

__managed__ int answer = 42;

__global__ void tells(const char *managed, const char *pinned, const char *device) {
    printf("the answer is %d\n", answer);
    printf("%s, %s, %s\n", managed, pinned, device);
}

int main(int argc, char **argv) {
    const Program program("printf_managed", argc, argv);
    char *managed, *pinned, *device;
    CHECK(cudaMallocManaged(&managed, 32));
    CHECK(cudaMallocHost(&pinned, 32));
    CHECK(cudaMalloc(&device, 32));
    std::strcpy(managed, "managed");
    std::strcpy(pinned, "pinned");
    CHECK(cudaMemcpy(device, "device", 7, cudaMemcpyHostToDevice));
    tells<<<1, 1>>>(managed, pinned, device);
    CHECK_KERNEL();
    CHECK(cudaFree(managed));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
    return Program::pass("both lines above");
}
