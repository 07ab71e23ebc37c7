// The kernels of this folder's programs, compiled to machine code: they are loaded by the driver API, as an executor
// would.

typedef unsigned long long Word;

extern "C" {

__global__ void nothing() {}

// Parameters as many kernels have them: pointers, a size, two scalars. It does nothing with them.
__global__ void typical(const float *a, const float *b, float *c, Word size, float alpha, int mode) {
    if (mode == 1234567) c[size] = alpha * a[size] + b[size];
}

struct Large {
    Word words[128];
};

// A block of parameters of 1 KiB and a pointer.
__global__ void large(Large block, Word *out) {
    if (block.words[127] == 1234567) *out = 1;
}

// Writes a word that the host may poll.
__global__ void tell(volatile Word *out, Word value) {
    *out = value;
    __threadfence_system();
}

__global__ void add(Word *sum, Word value) { atomicAdd(sum, value); }
__global__ void subtract(Word *sum, Word value) { atomicAdd(sum, 0 - value); }

// Keeps each of its threads busy for that long.
__global__ void spin(Word nanoseconds) {
    Word begun, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begun < nanoseconds);
}

// Runs until the word is no longer zero.
__global__ void until(volatile Word *go) {
    while (*go == 0) {
    }
}

__global__ void fill(Word *words, Word count, Word pattern) {
    const Word stride = (Word)gridDim.x * blockDim.x;
    for (Word at = (Word)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += stride) words[at] = pattern;
}

// Counts words that are not zero, and those that hold the pattern.
__global__ void look(const Word *words, Word count, Word pattern, Word *counts) {
    const Word stride = (Word)gridDim.x * blockDim.x;
    Word other = 0, same = 0;
    for (Word at = (Word)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += stride) {
        const Word word = words[at];
        other += word != 0;
        same += word == pattern;
    }
    if (other) atomicAdd(counts, other);
    if (same) atomicAdd(counts + 1, same);
}

__global__ void copy(uint4 *to, const uint4 *from, Word count) {
    const Word stride = (Word)gridDim.x * blockDim.x;
    for (Word at = (Word)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += stride) to[at] = from[at];
}

// Reads words all over the range: what translating addresses costs shows here. `count` is a power of two.
__global__ void gather(const Word *words, Word count, unsigned rounds, Word *out) {
    Word state = ((Word)blockIdx.x * blockDim.x + threadIdx.x) * 0x9E3779B97F4A7C15ull + 1, sum = 0;
    for (unsigned round = 0; round < rounds; round++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        sum += words[(state >> 20) & (count - 1)];
    }
    if (sum == 1234567) *out = sum;
}

// Numbers between -1 and 1 in bf16.
__global__ void random_bf16(unsigned short *numbers, Word count, Word seed) {
    const Word stride = (Word)gridDim.x * blockDim.x;
    for (Word at = (Word)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += stride) {
        Word state = (at + seed) * 0x9E3779B97F4A7C15ull;
        state = (state ^ (state >> 31)) * 0xBF58476D1CE4E5B9ull;
        const float number = (float)(int)(state >> 32) / 2147483648.0f;
        numbers[at] = (unsigned short)(__float_as_uint(number) >> 16);
    }
}
}
