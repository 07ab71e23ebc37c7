// What the device says about itself, printed as the samples do, with each value checked for sense.
#include "program.h"

__global__ void nothing(int *) {}

int main(int argc, char **argv) {
    const Program program("device_query", argc, argv);
    int devices = 0, current = -1, driver = 0, runtime = 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices < 1) Program::fail("no device");
    CHECK(cudaSetDevice(0));
    CHECK(cudaGetDevice(&current));
    if (current != 0) Program::fail("device %d is current, not 0", current);
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaRuntimeGetVersion(&runtime));
    if (runtime / 1000 != CUDART_VERSION / 1000) Program::fail("runtime %d, compiled for %d", runtime, CUDART_VERSION);
    if (driver / 1000 < runtime / 1000) Program::fail("driver %d is older than runtime %d", driver, runtime);

    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    int clock_khz = 0, processors = 0, major = 0, minor = 0;
    CHECK(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, 0));
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));

    std::printf("device 0 of %d: \"%s\"\n", devices, device.name);
    std::printf("  driver %d, runtime %d, compute capability %d.%d\n", driver, runtime, device.major, device.minor);
    std::printf("  memory %zu MiB, free %zu of %zu MiB, L2 %d KiB, bus %d bits\n", device.totalGlobalMem >> 20,
                free_bytes >> 20, total_bytes >> 20, device.l2CacheSize >> 10, device.memoryBusWidth);
    std::printf("  %d multiprocessors, clock %d MHz, warp %d\n", device.multiProcessorCount, clock_khz / 1000,
                device.warpSize);
    std::printf("  block: %d threads (%d, %d, %d), %d registers, %zu + %zu bytes shared\n", device.maxThreadsPerBlock,
                device.maxThreadsDim[0], device.maxThreadsDim[1], device.maxThreadsDim[2], device.regsPerBlock,
                device.sharedMemPerBlock, device.sharedMemPerBlockOptin);
    std::printf("  grid: (%d, %d, %d), copy engines %d, concurrent kernels %d\n", device.maxGridSize[0],
                device.maxGridSize[1], device.maxGridSize[2], device.asyncEngineCount, device.concurrentKernels);

    if (device.name[0] == '\0') Program::fail("the device has no name");
    if (device.major * 10 + device.minor < 75) Program::fail("compute capability %d.%d", device.major, device.minor);
    if (device.major != major || device.minor != minor) Program::fail("two compute capabilities");
    if (device.warpSize != 32) Program::fail("warps of %d", device.warpSize);
    if (device.maxThreadsPerBlock != 1024) Program::fail("blocks of %d threads", device.maxThreadsPerBlock);
    if (device.maxThreadsDim[0] != 1024 || device.maxThreadsDim[1] != 1024 || device.maxThreadsDim[2] != 64) {
        Program::fail("blocks up to (%d, %d, %d)", device.maxThreadsDim[0], device.maxThreadsDim[1],
                      device.maxThreadsDim[2]);
    }
    if (device.maxGridSize[0] < 65535 || device.maxGridSize[1] < 65535 || device.maxGridSize[2] < 65535) {
        Program::fail("grids up to (%d, %d, %d)", device.maxGridSize[0], device.maxGridSize[1], device.maxGridSize[2]);
    }
    if (device.sharedMemPerBlock < 48 * 1024) Program::fail("%zu bytes of shared memory", device.sharedMemPerBlock);
    if (device.sharedMemPerBlockOptin < device.sharedMemPerBlock) Program::fail("less shared memory by opting in");
    if (device.regsPerBlock < 32768) Program::fail("%d registers", device.regsPerBlock);
    if (device.multiProcessorCount < 1 || device.multiProcessorCount != processors) {
        Program::fail("%d or %d multiprocessors", device.multiProcessorCount, processors);
    }
    if (total_bytes == 0 || free_bytes == 0 || free_bytes > total_bytes) {
        Program::fail("%zu of %zu bytes free", free_bytes, total_bytes);
    }
    if (device.totalGlobalMem < free_bytes) Program::fail("%zu bytes of memory", device.totalGlobalMem);
    if (!device.unifiedAddressing) Program::fail("no unified addressing");

    cudaFuncAttributes function;
    CHECK(cudaFuncGetAttributes(&function, nothing));
    if (function.maxThreadsPerBlock < 32 || function.sharedSizeBytes > 1024) {
        Program::fail("an empty kernel: %d threads, %zu bytes shared", function.maxThreadsPerBlock,
                      function.sharedSizeBytes);
    }
    return Program::pass("\"%s\", %d.%d, %d multiprocessors", device.name, device.major, device.minor,
                         device.multiProcessorCount);
}
