// A thread makes things while another has the process move to an isolated session: each finds its own, whichever way it ends.
#include "driver.h"
#include "program.h"

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

extern "C" __global__ void write(unsigned *words, unsigned value) { words[threadIdx.x] = value; }

static void ended(void *count) { ++*static_cast<std::atomic<int> *>(count); }

// What a thread makes first.
static void begins_with(const char *what) {
    if (!std::strcmp(what, "physical")) {
        DRIVER(cuMemCreate);
        DRIVER(cuMemRelease);
        CUmemAllocationProp properties = {};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CUmemGenericAllocationHandle handle;
        if (cuMemCreate_(&handle, 64 << 20, &properties, 0) != CUDA_SUCCESS) Program::fail("no physical memory");
        if (cuMemRelease_(handle) != CUDA_SUCCESS) Program::fail("physical memory is nobody's");
    } else if (!std::strcmp(what, "registered")) {
        void *pages = std::malloc(1 << 20);
        CHECK(cudaHostRegister(pages, 1 << 20, 0));
        CHECK(cudaHostUnregister(pages));
        std::free(pages);
    } else if (!std::strcmp(what, "managed")) {
        unsigned *words;
        CHECK(cudaMallocManaged(&words, 4096));
        write<<<1, 32>>>(words, 7);
        CHECK(cudaDeviceSynchronize());
        if (words[3] != 7) Program::fail("%u in managed memory", words[3]);
        CHECK(cudaFree(words));
    } else if (!std::strcmp(what, "pinned")) {
        unsigned *words, *seen;
        CHECK(cudaMallocHost(&words, 4096));
        CHECK(cudaHostGetDevicePointer(&seen, words, 0));
        if (seen != words) Program::fail("host memory has two addresses");
        CHECK(cudaFreeHost(words));
    } else if (!std::strcmp(what, "object")) {
        static std::atomic<int> ends;
        cudaUserObject_t object, another;
        CHECK(cudaUserObjectCreate(&object, &ends, ended, 1, cudaUserObjectNoDestructorSync));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        CHECK(cudaUserObjectCreate(&another, &ends, ended, 1, cudaUserObjectNoDestructorSync));
        if (object == another) Program::fail("two objects of one name");
        CHECK(cudaUserObjectRelease(object));
        // Another thread of the library's may end it.
        for (int turn = 0; turn < 1000 && ends == 0; turn++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (ends != 1) Program::fail("%d objects ended", ends.load());
        CHECK(cudaUserObjectRelease(another));
    }
}

static void makes(unsigned value) {
    cudaStream_t stream;
    cudaEvent_t event;
    unsigned *words, got[32];
    CHECK(cudaMalloc(&words, sizeof got));
    CHECK(cudaMemset(words, 0, sizeof got));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&event));
    for (int round = 0; round < 20; round++) {
        write<<<1, 32, 0, stream>>>(words, value + round);
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaEventSynchronize(event));
        CHECK(cudaMemcpy(got, words, sizeof got, cudaMemcpyDeviceToHost));
        for (unsigned word : got)
            if (word != value + round) Program::fail("%u in place of %u", word, value + round);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(words));
}

int main(int argc, char **argv) {
    Program program("moves_race", argc, argv);
    int after = argc > 1 ? std::atoi(argv[1]) : 2;
    const char *what = argc > 2 ? argv[2] : "";
    CHECK(cudaFree(nullptr));
    DRIVER(cuModuleLoadData);
    std::atomic<bool> begins = false;
    std::thread other([&] {
        while (!begins) {}
        std::this_thread::sleep_for(std::chrono::milliseconds(after));
        begins_with(what);
        makes(1000);
    });
    unsigned char head[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    head[18] = 190;
    begins = true;
    CUmodule module;
    if (cuModuleLoadData_(&module, head) == CUDA_SUCCESS) Program::fail("the beginning of a file is loaded");
    makes(2000);
    other.join();
    return Program::pass("%d ms %s", after, what);
}
