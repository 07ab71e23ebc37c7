// Whether lanes of a warp go on apart behind what the verifier counts as parting them (decision 0086), and whether a
// shared address below zero comes back by its offset. Natively, on a GPU: `nvcc -arch=native parted.cu && ./a.out`.
//
//   a.out           a row for each case: threads, those that saw less than their warp, the masks of the first warp that did
//   a.out wrap      a load from shared memory whose register is below zero and whose offset brings it back
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

struct Seen { unsigned mask; unsigned turns; unsigned long long clock; };

__device__ unsigned active() {
    unsigned mask;
    asm volatile("activemask.b32 %0;" : "=r"(mask));
    return mask;
}

__device__ unsigned long long now() {
    unsigned long long clock;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(clock));
    return clock;
}

__device__ void note(Seen *seen, unsigned mask, unsigned turns) {
    seen[blockIdx.x * blockDim.x + threadIdx.x] = {mask, turns, now()};
}

// Lanes that sleep for other times, and those that sleep for one.
__global__ void sleep_each(Seen *seen, unsigned unit) {
    asm volatile("nanosleep.u32 %0;" ::"r"((threadIdx.x & 31) * unit));
    note(seen, active(), 0);
}
__global__ void sleep_same(Seen *seen, unsigned unit) {
    asm volatile("nanosleep.u32 %0;" ::"r"(31 * unit));
    note(seen, active(), 0);
}
__global__ void sleep_number(Seen *seen, unsigned) {
    asm volatile("nanosleep.u32 100000;");
    note(seen, active(), 0);
}
// A loop whose counter ptxas may keep in a register of the warp: lanes that part would count one another's turns.
__global__ void sleep_turns(Seen *seen, unsigned unit, unsigned turns) {
    unsigned together = ~0u, counted = 0;
    for (unsigned turn = 0; turn < turns; turn++) {
        asm volatile("nanosleep.u32 %0;" ::"r"(((threadIdx.x * 7 + turn) & 31) * unit));
        together &= active();
        counted++;
    }
    note(seen, together, counted);
}
// What ptxas makes functions of: half of the lanes take the slow path.
__global__ void divide_f32(Seen *seen, float small, float *results) {
    float x = threadIdx.x & 1 ? small : 3.0f, result;
    asm volatile("div.rn.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(threadIdx.x & 2 ? small * 0.5f : 7.0f));
    unsigned mask = active();
    results[blockIdx.x * blockDim.x + threadIdx.x] = result;
    note(seen, mask, 0);
}
__global__ void divide_f64(Seen *seen, double small, double *results) {
    double x = threadIdx.x & 1 ? small : 3.0, result;
    asm volatile("div.rn.f64 %0, %1, %2;" : "=d"(result) : "d"(x), "d"(threadIdx.x & 2 ? small * 0.5 : 7.0));
    unsigned mask = active();
    results[blockIdx.x * blockDim.x + threadIdx.x] = result;
    note(seen, mask, 0);
}
__global__ void root_f32(Seen *seen, float small, float *results) {
    float x = threadIdx.x & 1 ? small : 3.0f, result;
    asm volatile("sqrt.rn.f32 %0, %1;" : "=f"(result) : "f"(x));
    unsigned mask = active();
    results[blockIdx.x * blockDim.x + threadIdx.x] = result;
    note(seen, mask, 0);
}
__global__ void divide_u64(Seen *seen, unsigned long long large, unsigned long long *results) {
    unsigned long long x = threadIdx.x & 1 ? large : 12, result;
    asm volatile("div.u64 %0, %1, %2;" : "=l"(result) : "l"(x), "l"(threadIdx.x & 2 ? large >> 3 : 5ull));
    unsigned mask = active();
    results[blockIdx.x * blockDim.x + threadIdx.x] = result;
    note(seen, mask, 0);
}
// Accesses whose lanes take other times.
__global__ void atomics(Seen *seen, unsigned *words) {
    unsigned before = atomicAdd(words + (threadIdx.x & 1 ? 0 : threadIdx.x * 64), 1);
    unsigned mask = active();
    note(seen, mask, before & 0);
}
__global__ void below_zero(unsigned *out) {
    __shared__ unsigned words[64];
    for (unsigned at = threadIdx.x; at < 64; at += 32) words[at] = 1000 + at;
    __syncthreads();
    unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(words)), got;
    unsigned below = place - 4096;
    asm volatile("ld.shared.u32 %0, [%1+4096];" : "=r"(got) : "r"(below + 4 * (threadIdx.x & 1)));
    out[threadIdx.x] = got;
}

static void check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    printf("%-14s %s\n", what, cudaGetErrorString(error));
    exit(1);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "wrap")) {
        unsigned *out, host[32];
        check(cudaMalloc(&out, sizeof host), "memory");
        below_zero<<<1, 32>>>(out);
        check(cudaDeviceSynchronize(), "below zero");
        check(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost), "copy");
        printf("%-14s %u %u (1000 1001 where the address comes back)\n", "below zero", host[0], host[1]);
        return 0;
    }
    const unsigned blocks = 528, threads = 256, all = blocks * threads;
    Seen *seen, *host = new Seen[all];
    void *results;
    check(cudaMalloc(&seen, all * sizeof(Seen)), "memory");
    check(cudaMalloc(&results, all * 8), "memory");
    check(cudaMemset(results, 0, all * 8), "memory");
    const char *names[] = {"sleep each", "sleep same", "sleep number", "sleep turns", "div.rn.f32", "div.rn.f64", "sqrt.rn.f32",
                           "div.u64", "atom.add"};
    printf("%-14s %8s %8s %8s %s\n", "case", "threads", "apart", "turns", "clocks of the first warp apart, or of the first");
    for (unsigned which = 0; which < sizeof names / sizeof *names; which++) {
        check(cudaMemset(seen, 0, all * sizeof(Seen)), "memory");
        switch (which) {
        case 0: sleep_each<<<blocks, threads>>>(seen, 4096); break;
        case 1: sleep_same<<<blocks, threads>>>(seen, 4096); break;
        case 2: sleep_number<<<blocks, threads>>>(seen, 4096); break;
        case 3: sleep_turns<<<blocks, threads>>>(seen, 512, 40); break;
        case 4: divide_f32<<<blocks, threads>>>(seen, 1e-40f, static_cast<float *>(results)); break;
        case 5: divide_f64<<<blocks, threads>>>(seen, 1e-310, static_cast<double *>(results)); break;
        case 6: root_f32<<<blocks, threads>>>(seen, 1e-40f, static_cast<float *>(results)); break;
        case 7: divide_u64<<<blocks, threads>>>(seen, 1ull << 60, static_cast<unsigned long long *>(results)); break;
        case 8: atomics<<<blocks, threads>>>(seen, static_cast<unsigned *>(results)); break;
        }
        check(cudaDeviceSynchronize(), names[which]);
        check(cudaMemcpy(host, seen, all * sizeof(Seen), cudaMemcpyDeviceToHost), "copy");
        unsigned apart = 0, wrong = 0, warp = 0;
        for (unsigned thread = all; thread-- > 0;) {
            if (host[thread].mask != ~0u) {
                apart++;
                warp = thread / 32 * 32;
            }
            wrong += which == 3 && host[thread].turns != 40;
        }
        printf("%-14s %8u %8u %8u", names[which], all, apart, wrong);
        for (unsigned lane = 0; lane < 32; lane += 5)
            printf(" %08x@%llu", host[warp + lane].mask, host[warp + lane].clock - host[warp].clock);
        printf("\n");
    }
    return 0;
}
