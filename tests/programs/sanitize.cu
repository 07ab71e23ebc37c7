// Kernels with one mistake each, which `bulkhead run --sanitize` tells, and the same without. `sanitize small NAME` runs the
// kernel with that mistake; without a name all those run that have none.
// nvcc: -lineinfo -gencode arch=compute_90,code=[sm_90,compute_90]
#include "program.h"

#include <cuda_awbarrier_primitives.h>

constexpr int THREADS = 64;
constexpr unsigned ALL = 0xffffffffu;

__global__ void beyond(const int *from, int *to, int wrong) {
    to[threadIdx.x] = from[threadIdx.x + wrong]; // beyond
}

__global__ void misaligned(const char *from, int *to, int wrong) {
    to[threadIdx.x] = *reinterpret_cast<const int *>(from + 4 * threadIdx.x + wrong); // misaligned
}

__global__ void shared_beyond(int *to, int wrong) {
    __shared__ int tile[THREADS];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    to[threadIdx.x] = tile[(threadIdx.x + 1) % THREADS + wrong]; // shared beyond
}

__global__ void unwritten(const int *from, int *to) {
    to[threadIdx.x] = from[threadIdx.x]; // unwritten
}

__global__ void shared_unwritten(int *to, int wrong) {
    __shared__ int tile[2 * THREADS];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    to[threadIdx.x] = tile[threadIdx.x + wrong]; // shared unwritten
}

__global__ void read_after_write(int *to, int wrong) {
    __shared__ int tile[THREADS];
    tile[threadIdx.x] = threadIdx.x; // written
    if (!wrong) __syncthreads();
    to[threadIdx.x] = tile[THREADS - 1 - threadIdx.x]; // read after write
}

__global__ void write_after_read(int *to, int wrong) {
    __shared__ int tile[THREADS];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const int own = tile[THREADS - 1 - threadIdx.x]; // read early
    if (!wrong) __syncthreads();
    tile[threadIdx.x] = own; // write after read
    __syncthreads();
    to[threadIdx.x] = tile[threadIdx.x];
}

__global__ void write_after_write(int *to, int wrong) {
    __shared__ int flag, last;
    flag = 1; // all write the same
    if (wrong || threadIdx.x == 0) last = threadIdx.x; // write after write
    __syncthreads();
    to[threadIdx.x] = last + flag;
}

// The threads of a warp, without and with a barrier of the warp.
__global__ void warp_race(int *to, int wrong) {
    __shared__ int tile[32];
    tile[threadIdx.x] = threadIdx.x; // warp written
    if (!wrong) __syncwarp();
    to[threadIdx.x] = tile[threadIdx.x ^ 1]; // warp race
}

// The first warp hands a tile on to the second by a barrier object.
__global__ void not_awaited(int *to, int wrong) {
    __shared__ int tile[32];
    __shared__ __mbarrier_t filled;
    if (threadIdx.x == 0) __mbarrier_init(&filled, 32);
    __syncthreads();
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = threadIdx.x; // handed on
        (void)__mbarrier_arrive(&filled);
        return;
    }
    if (!wrong) {
        while (!__mbarrier_test_wait_parity(&filled, false)) {}
    }
    to[threadIdx.x] = tile[THREADS - 1 - threadIdx.x]; // not awaited
}

// A barrier object that nobody has initialized.
__global__ void no_object(int *to, int wrong) {
    __shared__ __mbarrier_t filled;
    if (threadIdx.x == 0 && !wrong) __mbarrier_init(&filled, THREADS);
    __syncthreads();
    const auto object = static_cast<unsigned>(__cvta_generic_to_shared(&filled));
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(object) : "memory"); // no object
    to[threadIdx.x] = 1;
}

// One thread of each warp adds to a sum behind a lock.
__global__ void unlocked(int *to, int wrong) {
    __shared__ int lock, sum;
    if (threadIdx.x == 0) lock = sum = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        while (!wrong && atomicCAS(&lock, 0, 1) != 0) {}
        __threadfence_block();
        sum += threadIdx.x; // unlocked
        __threadfence_block();
        if (!wrong) atomicExch(&lock, 0);
    }
    __syncthreads();
    to[threadIdx.x] = sum;
}

// All threads of two blocks count in global memory.
__global__ void counted(int *to, int wrong) {
    if (wrong) {
        to[0] += 1; // counted
    } else {
        atomicAdd(to, 1);
    }
}

// The block that comes last gathers what all have found.
__global__ void gathered(int *to, int *found, unsigned *ticket, int wrong) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        found[blockIdx.x] = blockIdx.x; // found
        if (!wrong) __threadfence();
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x < gridDim.x) to[threadIdx.x] = found[threadIdx.x]; // gathered
}

__global__ void barrier_exited(int *to, int wrong) {
    __shared__ int tile[THREADS];
    tile[threadIdx.x] = threadIdx.x;
    if (wrong && threadIdx.x >= THREADS - 8) return;
    __syncthreads(); // barrier exited
    to[threadIdx.x] = tile[threadIdx.x / 2];
} // barrier exited's end

__global__ void barrier_apart(int *to, int wrong) {
    if (wrong && threadIdx.x >= 32) {
        __syncthreads(); // elsewhere
        to[threadIdx.x] = 7;
    } else {
        to[threadIdx.x] = 5;
        if (wrong) __syncthreads(); // barrier apart
    }
    if (!wrong) __syncthreads();
}

__global__ void barriers_in_a_line(int *to, int wrong) {
    if (wrong && threadIdx.x >= 32) { __syncthreads(); to[threadIdx.x] = 7; } else { to[threadIdx.x] = 5; __syncthreads(); } // one line
}

// Half of each warp waits for its other half, which waits for the block.
__global__ void never_met(int *to, int wrong) {
    if (wrong && threadIdx.x % 32 >= 16) {
        __syncwarp(ALL); // the other half
    } else {
        __syncthreads(); // never met
    }
    to[threadIdx.x] = 3;
}

__global__ void lanes_exited(int *to, int wrong) {
    if (!wrong || threadIdx.x < 16) {
        to[threadIdx.x] = __shfl_xor_sync(ALL, static_cast<int>(threadIdx.x), 1); // lanes exited
    }
} // lanes exited's end

__global__ void own_lane(int *to, int wrong) {
    unsigned mask = wrong ? 0xffffu : ALL;
    __syncwarp(mask); // own lane
    to[threadIdx.x] = 1;
}

__global__ void masks_differ(int *to, int wrong) {
    unsigned mask = wrong && threadIdx.x >= 16 ? ALL : wrong ? ALL >> 1 : ALL;
    to[threadIdx.x] = __ballot_sync(mask, threadIdx.x & 1); // masks differ
}

// Lanes of a group wait for each other in two places, and go around for ever.
__global__ void lanes_elsewhere(int *to, int wrong) {
    int own = threadIdx.x;
    if (threadIdx.x < (wrong ? 8 : 16)) {
        own = __shfl_xor_sync(0xffff, own, 1); // lanes elsewhere
    } else if (threadIdx.x < 16) {
        own = __shfl_xor_sync(0xffff, own, 2); // their others
    }
    to[threadIdx.x] = own;
}

int main(int argc, char **argv) {
    const Program program("sanitize", argc, argv);
    const char *mistake = argc > 2 ? argv[2] : "";
    const auto wrong = [&](const char *name) { return std::strcmp(mistake, name) == 0; };
    // One kernel of many runs where a mistake is named.
    const auto runs = [&](const char *name) { return *mistake == 0 || wrong(name); };
    int *from, *to;
    CHECK(cudaMalloc(&from, THREADS * sizeof(int)));
    CHECK(cudaMalloc(&to, THREADS * sizeof(int)));
    if (!wrong("unwritten")) CHECK(cudaMemset(from, 1, THREADS * sizeof(int)));
    if (runs("beyond")) beyond<<<1, THREADS>>>(from, to, wrong("beyond"));
    if (runs("misaligned")) {
        const int threads = wrong("misaligned") ? THREADS - 1 : THREADS;
        misaligned<<<1, threads>>>(reinterpret_cast<char *>(from), to, 2 * wrong("misaligned"));
    }
    if (runs("shared_beyond")) shared_beyond<<<1, THREADS>>>(to, wrong("shared_beyond") ? THREADS : 0);
    if (runs("unwritten")) unwritten<<<1, THREADS>>>(from, to);
    if (runs("shared_unwritten")) shared_unwritten<<<2, THREADS>>>(to, wrong("shared_unwritten"));
    if (runs("read_after_write")) read_after_write<<<1, THREADS>>>(to, wrong("read_after_write"));
    if (runs("write_after_read")) write_after_read<<<1, THREADS>>>(to, wrong("write_after_read"));
    if (runs("write_after_write")) write_after_write<<<1, THREADS>>>(to, wrong("write_after_write"));
    if (runs("warp_race")) warp_race<<<1, 32>>>(to, wrong("warp_race"));
    if (runs("not_awaited")) not_awaited<<<1, THREADS>>>(to, wrong("not_awaited"));
    if (runs("no_object")) no_object<<<1, THREADS>>>(to, wrong("no_object"));
    if (runs("unlocked")) unlocked<<<1, THREADS>>>(to, wrong("unlocked"));
    if (runs("barrier_exited")) barrier_exited<<<1, THREADS>>>(to, wrong("barrier_exited"));
    if (runs("barrier_apart")) barrier_apart<<<1, THREADS>>>(to, wrong("barrier_apart"));
    if (runs("barriers_in_a_line")) barriers_in_a_line<<<1, THREADS>>>(to, wrong("barriers_in_a_line"));
    if (runs("never_met")) never_met<<<1, THREADS>>>(to, wrong("never_met"));
    if (runs("lanes_exited")) lanes_exited<<<1, 32>>>(to, wrong("lanes_exited"));
    if (runs("own_lane")) own_lane<<<1, 32>>>(to, wrong("own_lane"));
    if (runs("masks_differ")) masks_differ<<<1, 32>>>(to, wrong("masks_differ"));
    if (runs("lanes_elsewhere")) lanes_elsewhere<<<1, 32>>>(to, wrong("lanes_elsewhere"));
    if (runs("counted") || runs("gathered")) {
        int *zeros;
        CHECK(cudaMalloc(&zeros, 2 * THREADS * sizeof(int)));
        CHECK(cudaMemset(zeros, 0, 2 * THREADS * sizeof(int)));
        if (runs("counted")) counted<<<2, THREADS>>>(zeros + 1, wrong("counted"));
        if (runs("gathered")) gathered<<<8, THREADS>>>(to, zeros + THREADS, reinterpret_cast<unsigned *>(zeros), wrong("gathered"));
        CHECK_KERNEL();
        CHECK(cudaFree(zeros));
    }
    CHECK_KERNEL();
    // What was copied from nowhere is as unwritten as that.
    if (runs("copied")) {
        int *more;
        CHECK(cudaMalloc(&more, THREADS * sizeof(int)));
        CHECK(cudaMemcpy(more, from, (THREADS - wrong("copied")) * sizeof(int), cudaMemcpyDeviceToDevice));
        CHECK(cudaMemcpy(from, more, THREADS * sizeof(int), cudaMemcpyDeviceToDevice));
        unwritten<<<1, THREADS>>>(from, to);
        CHECK_KERNEL();
        CHECK(cudaFree(more));
    }
    CHECK(cudaFree(from));
    if (!wrong("leak")) CHECK(cudaFree(to));
    return Program::pass("%s", *mistake ? mistake : "no mistakes");
}
