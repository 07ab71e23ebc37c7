// Breadth-first search of a graph in a file, which kernels read themselves through a cache of pages. The graph may be larger than
// the GPU's memory: of it only the levels of its vertices lie there.
//
//   nvcc -gencode arch=compute_75,code=compute_75 -I modules/storage/include -o bfs modules/examples/bfs.cu
//   ./bfs make FILE VERTICES EDGES SEED                # a random graph, as the namespace `data`
//   bulkhead run --module storage=read:data -- ./bfs run FILE SOURCE PAGES
//
// FILE is read by the host once more, to compare.
#include "graph.cuh"

constexpr u32 FAR = ~0u, WARPS = 64;

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

// The levels as the host finds them.
static std::vector<u32> search(const HostGraph &graph, u32 source) {
    std::vector<u32> levels(graph.vertices(), FAR), frontier{source};
    levels[source] = 0;
    for (u32 level = 1; !frontier.empty(); level++) {
        std::vector<u32> next;
        for (u32 vertex : frontier) {
            for (u64 edge = graph.begin(vertex); edge < graph.end(vertex); edge++) {
                const u32 target = graph.targets[edge];
                if (levels[target] != FAR) continue;
                levels[target] = level;
                next.push_back(target);
            }
        }
        frontier.swap(next);
    }
    return levels;
}

static int run(const char *file, u32 source, u32 pages) {
    HostGraph host;
    if (!host.read(file)) return 2;
    const u64 vertices = host.vertices(), edges = host.targets.size();
    if (source >= vertices) {
        fprintf(stderr, "there is no vertex %u\n", source);
        return 2;
    }
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
    const Graph graph(cache, vertices, edges);
    u32 size = 1, level = 0, told[2] = {};
    while (size > 0 && told[1] == storage::DONE) {
        CHECK(cudaMemset(state, 0, 4));
        step<<<WARPS / 4, 128>>>(graph, ++level, levels, frontier, size, next, state, state + 1);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(told, state, 8, cudaMemcpyDeviceToHost));
        size = told[0];
        std::swap(frontier, next);
    }
    std::vector<u32> found(vertices), expected = search(host, source);
    CHECK(cudaMemcpy(found.data(), levels, vertices * 4, cudaMemcpyDeviceToHost));
    storage::Told counted;
    CHECK(storage::told(cache, counted));
    if (told[1] != storage::DONE) {
        fprintf(stderr, "a read was answered %x, %s\n", told[1], storage::meaning(told[1]));
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
