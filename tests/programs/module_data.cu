// Variables at module scope of every kind: initialized, zero, arrays, structures, with addresses of each other in them,
// read and written by kernels and by the host.
#include "program.h"

struct Node {
    int value;
    Node *next;
    char letter;
};

struct __align__(16) Four {
    float a, b, c, d;
};

__device__ int zero;
__device__ int of_the_host;  // no kernel names it
__device__ int five = 5;
static __device__ float some[16] = {1, 2, 3};
__device__ Node last = {2, nullptr, 'z'};
__device__ Node first = {1, &last, 'a'};
__device__ int *to_five = &five;
__device__ float *into_some = some + 2;
__device__ Four four = {1, 2, 3, 4};
__device__ double many[100000];
__device__ unsigned char bytes[5] = {1, 2, 3, 4, 5};
__device__ short grid_of[3][2] = {{1, 2}, {3}, {5, 6}};
__device__ volatile unsigned long long wide = 0x123456789abcdefULL;

// Calls through a function that takes the address, so that accesses are generic.
__device__ __noinline__ int at(const int *address) { return *address; }

struct Seen {
    int zero, five, through, node, letter, byte, cell, counted;
    float some, into, sum, changed;
    double many;
    unsigned long long wide;
};

__global__ void look(Seen *seen, int i) {
    Four own = four;
    seen->zero = zero;
    seen->five = at(&five);
    seen->through = *to_five;
    seen->node = first.next->value * 10 + first.value;
    seen->letter = first.next->letter;
    seen->byte = bytes[i];
    seen->cell = grid_of[i][1];
    seen->some = some[i];
    seen->into = into_some[0];
    seen->sum = own.a + own.b + own.c + own.d;
    seen->many = many[99999 - i];
    seen->wide = wide;
}

__global__ void change(int i) {
    atomicAdd(&zero, 1);
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        some[i] = 40.0f;
        many[99999] = 0.5;
        first.next = &first;
        wide = wide + 1;
        to_five = &zero;
    }
}

int main(int argc, char **argv) {
    const Program program("module_data", argc, argv);
    Seen *device, seen;
    CHECK(cudaMalloc(&device, sizeof seen));
    look<<<1, 1>>>(device, 2);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(&seen, device, sizeof seen, cudaMemcpyDeviceToHost));
    if (seen.zero != 0 || seen.five != 5 || seen.through != 5) Program::fail("five is %d, %d", seen.five, seen.through);
    if (seen.node != 21 || seen.letter != 'z') Program::fail("nodes are %d, %d", seen.node, seen.letter);
    if (seen.byte != 3 || seen.cell != 6) Program::fail("byte %d, cell %d", seen.byte, seen.cell);
    if (seen.some != 3 || seen.into != 3 || seen.sum != 10) Program::fail("%f %f %f", seen.some, seen.into, seen.sum);
    if (seen.many != 0 || seen.wide != 0x123456789abcdefULL) Program::fail("%f %llx", seen.many, seen.wide);

    // The host writes and reads by name, and by address.
    const float written[3] = {7, 8, 9};
    CHECK(cudaMemcpyToSymbol(some, written, sizeof written, sizeof(float)));
    size_t length = 0;
    CHECK(cudaGetSymbolSize(&length, many));
    if (length != sizeof many) Program::fail("%zu bytes of many", length);
    double *address;
    CHECK(cudaGetSymbolAddress(reinterpret_cast<void **>(&address), many));
    const double three = 3;
    CHECK(cudaMemcpy(address + 99997, &three, sizeof three, cudaMemcpyHostToDevice));
    look<<<1, 1>>>(device, 2);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(&seen, device, sizeof seen, cudaMemcpyDeviceToHost));
    if (seen.some != 8 || seen.into != 8 || seen.many != 3) Program::fail("%f %f", seen.some, seen.many);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, address));
    if (attributes.type != cudaMemoryTypeDevice) Program::fail("memory of type %d", attributes.type);
    if (cudaFree(address) == cudaSuccess) Program::fail("a variable was freed");
    (void)cudaGetLastError();

    // Kernels write, the host reads.
    change<<<8, 32>>>(1);
    CHECK_KERNEL();
    int count = 0;
    float changed = 0;
    CHECK(cudaMemcpyFromSymbol(&count, zero, sizeof count));
    CHECK(cudaMemcpyFromSymbol(&changed, some, sizeof changed, sizeof(float)));
    if (count != 256 || changed != 40) Program::fail("counted %d, changed %f", count, changed);
    look<<<1, 1>>>(device, 0);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(&seen, device, sizeof seen, cudaMemcpyDeviceToHost));
    if (seen.node != 11 || seen.through != 256 || seen.many != 0.5) Program::fail("%d %d", seen.node, seen.through);
    if (seen.wide != 0x123456789abcdf0ULL) Program::fail("wide is %llx", seen.wide);
    const int hosts = 77;
    int read = 0;
    CHECK(cudaMemcpyToSymbol(of_the_host, &hosts, sizeof hosts));
    CHECK(cudaMemcpyFromSymbol(&read, of_the_host, sizeof read));
    if (read != hosts) Program::fail("a variable of the host is %d, not %d", read, hosts);
    CHECK(cudaFree(device));
    return Program::pass("13 variables, %d counted", count);
}
