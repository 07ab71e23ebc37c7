// Kernels that reach memory which was freed, or that of a neighbour, which `bulkhead run --check` and `--sanitize` tell.
// `memory_mistakes small NAME` makes the mistake of that name; without a name none is made.
// nvcc: -lineinfo -gencode arch=compute_90,code=[sm_90,compute_90]
#include "program.h"

constexpr int N = 128;

__device__ int before[4], table[4], behind[4];

struct Node {
    Node *next;
    int value;
};

__global__ void scribble(unsigned *to, size_t words) {
    for (size_t i = threadIdx.x; i < words; i += blockDim.x) to[i] = 0xffffffffu; // scribbled
}

__global__ void beyond(const int *from, int *to, int wrong) {
    to[threadIdx.x] = from[int(threadIdx.x) + wrong]; // beyond
}

__global__ void stores(int *to, int wrong) {
    to[int(threadIdx.x) + wrong] = 5; // stored
}

__global__ void fill(int *to, int value) {
    to[threadIdx.x] = value;
}

__global__ void link(Node *first, Node *second) {
    *first = {second, 1};
    *second = {nullptr, 2};
}

__global__ void follow(const Node *node, int *to) {
    int sum = 0;
    while (node) {
        sum += node->value; // followed
        node = node->next; // next
    }
    *to = sum;
}

__global__ void variable(int index) {
    if (index > 4) table[0] = before[0] + behind[0];
    table[index] = 9; // table
}

__global__ void arrays(int *to, int wrong, int index) {
    __shared__ int left[N], right[N];
    left[threadIdx.x] = 1;
    right[threadIdx.x] = 2;
    __syncthreads();
    const int *own = index < 0 ? left : right;
    to[threadIdx.x] = left[int(threadIdx.x) + wrong] + own[threadIdx.x]; // array
}

int main(int argc, char **argv) {
    const Program program("memory_mistakes", argc, argv);
    const char *mistake = argc > 2 ? argv[2] : "";
    const auto wrong = [&](const char *name) { return std::strcmp(mistake, name) == 0; };
    // Freed before anything of the module is there, which must not come to lie where this was.
    unsigned *early;
    constexpr size_t EARLY = 1 << 20;
    CHECK(cudaMalloc(&early, EARLY));
    const bool late = wrong("early") || wrong("early_and_behind");
    if (late) CHECK(cudaFree(early));
    int *small;
    CHECK(cudaMalloc(&small, N * sizeof(int)));
    scribble<<<1, N>>>(early, EARLY / sizeof(unsigned));
    // Nobody waits between the two.
    stores<<<1, N>>>(small, wrong("early_and_behind"));
    CHECK_KERNEL();
    CHECK(cudaFree(small));
    if (!late) CHECK(cudaFree(early));

    int *first, *second, *to, *pinned;
    CHECK(cudaMalloc(&first, N * sizeof(int)));
    CHECK(cudaMalloc(&second, N * sizeof(int)));
    CHECK(cudaMalloc(&to, N * sizeof(int)));
    CHECK(cudaMallocHost(&pinned, N * sizeof(int)));
    fill<<<1, N>>>(first, 1);
    fill<<<1, N>>>(second, 2);
    fill<<<1, N>>>(pinned, 3);
    CHECK_KERNEL();
    // The neighbour of a block is allocated too.
    beyond<<<1, N>>>(first, to, wrong("behind"));
    beyond<<<1, N>>>(second, to, wrong("before") ? -1 : 0);
    stores<<<1, N>>>(second, wrong("store") ? -1 : 0);
    stores<<<1, N>>>(first, wrong("store") ? 1 : 0);
    CHECK_KERNEL();
    if (wrong("second_kernel")) {
        int *again;
        CHECK(cudaFree(first));
        CHECK(cudaMalloc(&again, N * sizeof(int)));
        fill<<<1, N>>>(again, 7);
        beyond<<<1, N>>>(first, to, 0);
        CHECK_KERNEL();
        first = again;
    }
    if (wrong("in_order")) {
        int *ordered;
        CHECK(cudaMallocAsync(&ordered, N * sizeof(int), 0));
        fill<<<1, N>>>(ordered, 7);
        CHECK(cudaFreeAsync(ordered, 0));
        beyond<<<1, N>>>(ordered, to, 0);
        CHECK_KERNEL();
    }
    if (wrong("pinned")) {
        CHECK(cudaFreeHost(pinned));
        CHECK(cudaMallocHost(&pinned, N * sizeof(int)));
        int *stale = pinned;
        CHECK(cudaFreeHost(pinned));
        beyond<<<1, N>>>(stale, to, 0);
        CHECK_KERNEL();
    } else {
        CHECK(cudaFreeHost(pinned));
    }
    // A list of which the first element is freed before the second.
    Node *head, *tail;
    CHECK(cudaMalloc(&head, sizeof(Node)));
    CHECK(cudaMalloc(&tail, sizeof(Node)));
    link<<<1, 1>>>(head, tail);
    CHECK_KERNEL();
    if (wrong("list")) CHECK(cudaFree(tail));
    follow<<<1, 1>>>(head, to);
    CHECK_KERNEL();
    if (!wrong("list")) CHECK(cudaFree(tail));
    CHECK(cudaFree(head));

    const int zeros[4] = {0, 0, 0, 0};
    CHECK(cudaMemcpyToSymbol(behind, zeros, sizeof(zeros)));
    CHECK(cudaMemcpyToSymbol(before, zeros, sizeof(zeros)));
    variable<<<1, 1>>>(wrong("variable") ? 4 : 3);
    variable<<<1, 1>>>(wrong("variable") ? -1 : 0);
    CHECK_KERNEL();
    arrays<<<1, N>>>(to, wrong("array"), argc);
    CHECK_KERNEL();
    int around[8];
    CHECK(cudaMemcpyFromSymbol(around, behind, sizeof(zeros)));
    CHECK(cudaMemcpyFromSymbol(around + 4, before, sizeof(zeros)));
    for (int value : around) {
        if (value != 0) Program::fail("a variable's neighbour has %d", value);
    }
    CHECK(cudaFree(first));
    CHECK(cudaFree(second));
    CHECK(cudaFree(to));
    return Program::pass("%s", *mistake ? mistake : "no mistakes");
}
