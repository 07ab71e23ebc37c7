// Device functions that call themselves: once and twice, each other, through pointers, with variables of their own.
#include "program.h"

constexpr int THREADS = 64;

// Both calls of the second line nest.
__host__ __device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

__host__ __device__ __noinline__ bool odd(unsigned n);
__host__ __device__ __noinline__ bool even(unsigned n) { return n == 0 || odd(n - 1); }
__host__ __device__ __noinline__ bool odd(unsigned n) { return n != 0 && even(n - 1); }

// Each call has an array of its own, and writes to its caller's.
__host__ __device__ __noinline__ int digits(int value, int depth, int *sums) {
    int own[10] = {};
    own[value % 10] = value;
    if (depth > 0) digits(value / 3 + depth, depth - 1, own);
    if (depth > 2) digits(value / 7 + depth, depth - 2, own);
    int sum = 0;
    for (int i = 0; i < 10; i++) {
        sum = sum * 3 + own[i];
        sums[i] += own[i] + depth;
    }
    return sum;
}

__host__ __device__ __noinline__ void quicksort(int *values, int first, int last) {
    if (first >= last) return;
    const int pivot = values[(first + last) / 2];
    int low = first, high = last;
    while (low <= high) {
        while (values[low] < pivot) low++;
        while (values[high] > pivot) high--;
        if (low <= high) {
            const int moved = values[low];
            values[low++] = values[high];
            values[high--] = moved;
        }
    }
    quicksort(values, first, high);
    quicksort(values, low, last);
}

// Large structures as parameters and results, values of many widths across a call.
struct Box {
    double low[3];
    float high[3];
    short tag;
    char kind;
};
__host__ __device__ __noinline__ Box split(Box box, int depth, unsigned char path) {
    if (depth == 0) return box;
    Box left = box, right = box;
    const int axis = depth % 3;
    const bool up = path & 1;
    left.high[axis] = static_cast<float>(box.low[axis] + box.high[axis]) / 2;
    right.low[axis] = left.high[axis];
    right.tag = static_cast<short>(box.tag + depth);
    const Box inner = split(up ? right : left, depth - 1, path >> 1);
    Box outer = depth > 3 ? split(up ? left : right, depth - 3, path >> 2) : box;
    outer.low[axis] += inner.low[axis] / 8;
    outer.high[axis] += inner.high[axis] / 4;
    outer.tag = static_cast<short>(outer.tag + inner.tag + up);
    outer.kind = static_cast<char>(inner.kind + 1);
    return outer;
}

// A tree whose nodes are of several kinds, as scenes are.
struct Node {
    __device__ virtual float value(float at, int depth) const = 0;
};
struct Leaf : Node {
    float scale;
    __device__ explicit Leaf(float scale) : scale(scale) {}
    __device__ float value(float at, int) const override { return scale * at; }
};
struct Sum : Node {
    const Node *left, *right;
    __device__ Sum(const Node *left, const Node *right) : left(left), right(right) {}
    __device__ float value(float at, int depth) const override {
        return left->value(at + 1, depth + 1) + right->value(at, depth + 1);
    }
};
struct Deeper : Node {
    const Node *inner;
    __device__ explicit Deeper(const Node *inner) : inner(inner) {}
    __device__ float value(float at, int depth) const override {
        return depth < 6 ? inner->value(at, depth + 1) * 2 : at;
    }
};

__global__ void compute(unsigned *out) {
    const unsigned i = threadIdx.x;
    out[i] = ackermann(2, i % 7) * 2 + even(i);
}

__global__ void arrays(int *out) {
    int sums[10] = {};
    int result = digits(threadIdx.x * 37, 3 + threadIdx.x % 4, sums);
    for (int i = 0; i < 10; i++) result = result * 5 + sums[i];
    out[threadIdx.x] = result;
}

__global__ void sort(int *values, int each) { quicksort(values + threadIdx.x * each, 0, each - 1); }

__global__ void boxes(Box *out) {
    Box box = {{0, 1, 2}, {8, 9, 10}, 3, 'a'};
    out[threadIdx.x] = split(box, 7, static_cast<unsigned char>(threadIdx.x * 29));
}

__global__ void tree(float *out) {
    const Leaf a(2), b(3);
    const Sum sum(&a, &b);
    const Deeper deeper(&sum);
    const Sum root(&deeper, threadIdx.x & 1 ? static_cast<const Node *>(&deeper) : &a);
    const Node *node = &root;
    out[threadIdx.x] = node->value(static_cast<float>(threadIdx.x), 0);
}

__host__ __device__ __noinline__ unsigned endless(unsigned n) { return n + endless(n + 1) * (n | 1); }
__global__ void too_deep(unsigned *out) { out[threadIdx.x] = endless(threadIdx.x); }

int main(int argc, char **argv) {
    const Program program("recursion", argc, argv);
    // What CUDA gives each thread otherwise, 1 KiB, is too little.
    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 16 << 10));
    static int memory[1 << 14];
    void *device;
    CHECK(cudaMalloc(&device, sizeof memory));
    const auto fetch = [&] {
        CHECK_KERNEL();
        CHECK(cudaMemcpy(memory, device, sizeof memory, cudaMemcpyDeviceToHost));
    };
    if (argc > 1 && !strcmp(argv[1], "--too-deep")) {
        too_deep<<<1, 32>>>(static_cast<unsigned *>(device));
        fetch();
        return Program::pass("the stack has no end");
    }
    compute<<<1, THREADS>>>(static_cast<unsigned *>(device));
    fetch();
    for (unsigned i = 0; i < THREADS; i++) {
        const unsigned expected = ackermann(2, i % 7) * 2 + even(i);
        if (static_cast<unsigned>(memory[i]) != expected) Program::fail("compute: [%u] = %u, not %u", i, memory[i], expected);
    }
    arrays<<<1, THREADS>>>(static_cast<int *>(device));
    fetch();
    for (int i = 0; i < THREADS; i++) {
        int sums[10] = {};
        int expected = digits(i * 37, 3 + i % 4, sums);
        for (int sum : sums) expected = expected * 5 + sum;
        if (memory[i] != expected) Program::fail("arrays: [%d] = %d, not %d", i, memory[i], expected);
    }
    const int each = sizeof memory / sizeof *memory / THREADS;
    unsigned random = 1;
    for (int &value : memory) value = static_cast<int>((random = random * 1664525 + 1013904223) >> 8);
    CHECK(cudaMemcpy(device, memory, sizeof memory, cudaMemcpyHostToDevice));
    sort<<<1, THREADS>>>(static_cast<int *>(device), each);
    fetch();
    for (int i = 0; i < THREADS * each; i++) {
        if (i % each && memory[i - 1] > memory[i]) Program::fail("sort: [%d] is out of order", i);
    }
    boxes<<<1, THREADS>>>(static_cast<Box *>(device));
    fetch();
    for (int i = 0; i < THREADS; i++) {
        const Box box = {{0, 1, 2}, {8, 9, 10}, 3, 'a'};
        const Box expected = split(box, 7, static_cast<unsigned char>(i * 29));
        const Box &found = reinterpret_cast<Box *>(memory)[i];
        for (int axis = 0; axis < 3; axis++) {
            if (found.low[axis] != expected.low[axis] || found.high[axis] != expected.high[axis])
                Program::fail("boxes: [%d] differs along %d", i, axis);
        }
        if (found.tag != expected.tag || found.kind != expected.kind) Program::fail("boxes: [%d] has another tag", i);
    }
    tree<<<1, THREADS>>>(static_cast<float *>(device));
    fetch();
    for (int i = 0; i < THREADS; i++) {
        const float at = static_cast<float>(i), sum = 2 * (at + 1) + 3 * at, higher = 2 * (at + 2) + 3 * (at + 1);
        const float expected = 2 * higher + (i & 1 ? 2 * sum : 2 * at), found = reinterpret_cast<float *>(memory)[i];
        if (found != expected) Program::fail("tree: [%d] = %g, not %g", i, found, expected);
    }
    CHECK(cudaFree(device));
    return Program::pass("functions that call themselves, each other and through pointers");
}
