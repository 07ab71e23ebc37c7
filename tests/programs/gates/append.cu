// Appends to a protected module's log, and reads what it has appended: what `bulkhead run --gates` is for.
// nvcc: -gencode arch=compute_75,code=compute_75
#include "../program.h"

#include <algorithm>
#include <vector>

// The gates of tests/src/log.ptx.
extern "C" __device__ unsigned log_append(unsigned long long value);
extern "C" __device__ unsigned long long log_own(unsigned ticket);

__global__ void append(unsigned *tickets, unsigned long long *own, unsigned long long value) {
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned ticket = log_append(value + thread);
    tickets[thread] = ticket;
    own[thread] = log_own(ticket);
}

int main(int argc, char **argv) {
    const Program program("append", argc, argv);
    const unsigned threads = 96, value = 1000;
    unsigned *device_tickets;
    unsigned long long *device_own;
    CHECK(cudaMalloc(&device_tickets, threads * sizeof *device_tickets));
    CHECK(cudaMalloc(&device_own, threads * sizeof *device_own));
    append<<<3, threads / 3>>>(device_tickets, device_own, value);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::vector<unsigned> tickets(threads);
    std::vector<unsigned long long> own(threads);
    CHECK(cudaMemcpy(tickets.data(), device_tickets, threads * sizeof(unsigned), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(own.data(), device_own, threads * sizeof(unsigned long long), cudaMemcpyDeviceToHost));
    for (unsigned thread = 0; thread < threads; thread++) {
        if (own[thread] != value + thread) Program::fail("thread %u reads %llu", thread, own[thread]);
    }
    std::sort(tickets.begin(), tickets.end());
    for (unsigned place = 1; place < threads; place++) {
        if (tickets[place] != tickets[place - 1] + 1) Program::fail("a ticket is there twice or lost");
    }
    CHECK(cudaFree(device_tickets));
    CHECK(cudaFree(device_own));
    return Program::pass("%u records, the first %u", threads, tickets[0]);
}
