// Breadth-first search of a graph in a file, which kernels read themselves through a cache of pages. The graph may be larger than
// the GPU's memory: of it only the levels of its vertices lie there.
//
//   nvcc -gencode arch=compute_75,code=compute_75 -I modules/storage/include -o bfs modules/examples/bfs.cu
//   ./bfs make FILE VERTICES EDGES SEED                # a random graph, as the namespace `data`
//   bulkhead run --module storage=read:data -- ./bfs run FILE SOURCE PAGES
//
// The file has words of 64 bits: how many vertices and edges there are, where each vertex's edges begin, and where they end; then a
// word of 32 bits for each edge, the vertex it leads to. FILE is read by the host once more, to compare.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <bulkhead_cache.cuh>

using storage::u32;
using storage::u64;

#define CHECK(call)                                                        \
    do {                                                                   \
        cudaError_t error = (call);                                        \
        if (error != cudaSuccess) {                                        \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
            exit(2);                                                       \
        }                                                                  \
    } while (0)

constexpr u32 FAR = ~0u, WARPS = 64;

struct Graph {
    u64 vertices, edges;
    storage::array<u64> begins;
    storage::array<u32> targets;
    u64 first_target;  // where they begin, in words of 32 bits
};

// A warp takes a vertex of the last level, reads where its edges lead, and puts what was not reached before into the next.
__global__ void step(Graph graph, u32 level, u32 *levels, const u32 *frontier, u32 size, u32 *next, u32 *next_size, u32 *code) {
    const u32 lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    for (u32 at = warp; at < size; at += warps) {
        const u32 vertex = frontier[at];
        // Those of the vertex that this warp takes next are begun to be read.
        if (lane == 0 && at + warps < size) graph.begins.prefetch(2 + static_cast<u64>(frontier[at + warps]));
        __syncwarp();
        u64 where = 0;
        u32 read = graph.begins.get_warp(2 + static_cast<u64>(vertex) + lane, where, lane < 2);
        const u64 begin = __shfl_sync(0xFFFFFFFF, where, 0), end = __shfl_sync(0xFFFFFFFF, where, 1);
        if (read != storage::DONE) atomicCAS(code, storage::DONE, read);
        if (end > graph.edges) continue;
        for (u64 edge = begin; edge < end; edge += 32) {
            u32 target = 0;
            const bool has = edge + lane < end;
            read = graph.targets.get_warp(graph.first_target + edge + lane, target, has);
            if (read != storage::DONE) atomicCAS(code, storage::DONE, read);
            const bool found = has && read == storage::DONE && target < graph.vertices;
            if (found && atomicCAS(&levels[target], FAR, level) == FAR) next[atomicAdd(next_size, 1)] = target;
        }
    }
}

static int make(const char *file, u64 vertices, u64 edges, u64 seed) {
    std::vector<u64> head(vertices + 3);
    std::vector<u32> targets(edges);
    u64 x = seed * 0x9E3779B97F4A7C15ull + 1;
    auto random = [&] { return x ^= x << 13, x ^= x >> 7, x ^= x << 17; };
    // Few vertices have many edges.
    std::vector<u32> degree(vertices);
    for (u64 edge = 0; edge < edges; edge++) {
        u64 from = random() % vertices;
        if (random() % 4 == 0) from %= vertices / 64 + 1;
        degree[from]++;
    }
    head[0] = vertices, head[1] = edges;
    for (u64 vertex = 0; vertex < vertices; vertex++) head[3 + vertex] = head[2 + vertex] + degree[vertex];
    for (u32 &target : targets) target = static_cast<u32>(random() % vertices);
    FILE *to = fopen(file, "wb");
    const u64 bytes = head.size() * 8 + targets.size() * 4, rest = (512 - bytes % 512) % 512;
    const char zeros[512] = {};
    if (to == nullptr || fwrite(head.data(), 8, head.size(), to) != head.size() ||
        fwrite(targets.data(), 4, targets.size(), to) != targets.size() || fwrite(zeros, 1, rest, to) != rest || fclose(to) != 0) {
        perror(file);
        return 2;
    }
    printf("%llu vertices, %llu edges, %llu blocks\n", vertices, edges, (bytes + rest) / 512);
    return 0;
}

// The levels as the host finds them.
static std::vector<u32> search(const std::vector<u64> &head, const std::vector<u32> &targets, u32 source) {
    std::vector<u32> levels(head[0], FAR), frontier{source};
    levels[source] = 0;
    for (u32 level = 1; !frontier.empty(); level++) {
        std::vector<u32> next;
        for (u32 vertex : frontier) {
            for (u64 edge = head[2 + vertex]; edge < head[3 + vertex]; edge++) {
                if (levels[targets[edge]] != FAR) continue;
                levels[targets[edge]] = level;
                next.push_back(targets[edge]);
            }
        }
        frontier.swap(next);
    }
    return levels;
}

static int run(const char *file, u32 source, u32 pages) {
    FILE *from = fopen(file, "rb");
    std::vector<u64> head(2);
    if (from == nullptr || fread(head.data(), 8, 2, from) != 2 || source >= head[0]) {
        fprintf(stderr, "%s is no graph with a vertex %u\n", file, source);
        return 2;
    }
    const u64 vertices = head[0], edges = head[1];
    head.resize(vertices + 3);
    std::vector<u32> targets(edges);
    if (fread(&head[2], 8, vertices + 1, from) != vertices + 1 || fread(targets.data(), 4, edges, from) != edges) {
        fprintf(stderr, "%s is shorter than it says\n", file);
        return 2;
    }
    fclose(from);
    storage::Cache cache;
    u32 *levels, *frontier, *next, *state;
    CHECK(storage::make(cache, pages));
    CHECK(cudaMalloc(&levels, vertices * 4));
    CHECK(cudaMalloc(&frontier, vertices * 4));
    CHECK(cudaMalloc(&next, vertices * 4));
    CHECK(cudaMalloc(&state, 8));
    CHECK(cudaMemset(levels, 0xFF, vertices * 4));
    CHECK(cudaMemset(levels + source, 0, 4));
    CHECK(cudaMemcpy(frontier, &source, 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(state, 0, 8));
    const u64 first_target = 2 * (vertices + 3);
    const Graph graph = {vertices, edges, {cache, 0, vertices + 3}, {cache, 0, first_target + edges}, first_target};
    u32 size = 1, level = 0, told[2] = {};
    while (size > 0 && told[1] == storage::DONE) {
        CHECK(cudaMemset(state, 0, 4));
        step<<<WARPS / 4, 128>>>(graph, ++level, levels, frontier, size, next, state, state + 1);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(told, state, 8, cudaMemcpyDeviceToHost));
        size = told[0];
        std::swap(frontier, next);
    }
    std::vector<u32> found(vertices), expected = search(head, targets, source);
    CHECK(cudaMemcpy(found.data(), levels, vertices * 4, cudaMemcpyDeviceToHost));
    storage::Told counted;
    CHECK(storage::told(cache, counted));
    if (told[1] != storage::DONE) {
        fprintf(stderr, "a read was answered %x\n", told[1]);
        return 2;
    }
    u64 wrong = 0, reached = 0;
    for (u64 vertex = 0; vertex < vertices; vertex++) {
        wrong += found[vertex] != expected[vertex];
        reached += found[vertex] != FAR;
    }
    printf("%llu of %llu vertices in %u levels; %llu pages loaded, %llu reads past, %llu ahead; %llu wrong\n", reached, vertices, level - 1,
           counted.loaded, counted.past, counted.ahead, wrong);
    return wrong == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    auto number = [&](int at) { return strtoull(argv[at], nullptr, 0); };
    if (argc == 6 && !strcmp(argv[1], "make") && number(3) > 0) return make(argv[2], number(3), number(4), number(5));
    if (argc == 5 && !strcmp(argv[1], "run")) return run(argv[2], static_cast<u32>(number(3)), static_cast<u32>(number(4)));
    fprintf(stderr, "usage: bfs make FILE VERTICES EDGES SEED | bfs run FILE SOURCE PAGES\n");
    return 2;
}
