// PageRank of a graph in a file, which kernels read themselves through a cache of pages: of it only ranks lie in the GPU's memory.
//
//   nvcc -gencode arch=compute_75,code=compute_75 -I modules/storage/include -o pagerank modules/examples/pagerank.cu
//   ./pagerank make FILE VERTICES EDGES SEED           # a random graph, as the namespace `data`
//   bulkhead run --module storage=read:data -- ./pagerank run FILE ROUNDS PAGES
//
// FILE is read by the host once more, to compare.
#include "graph.cuh"

constexpr float KEEPS = 0.85f;
constexpr u32 WARPS = 64;

// Each warp takes vertices in turn, and gives a part of their ranks to those their edges lead to.
__global__ void give(Graph graph, const float *ranks, float *next, u32 *code) {
    const u64 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    const u32 lane = threadIdx.x % 32;
    for (u64 vertex = warp; vertex < graph.vertices; vertex += warps) {
        u64 where = 0;
        u32 read = graph.begins.get_warp(2 + vertex + lane, where, lane < 2);
        const u64 begin = __shfl_sync(0xFFFFFFFF, where, 0), end = __shfl_sync(0xFFFFFFFF, where, 1);
        if (read != storage::DONE) atomicCAS(code, storage::DONE, read);
        if (end > graph.edges || begin >= end) continue;
        const float part = KEEPS * ranks[vertex] / static_cast<float>(end - begin);
        for (u64 edge = begin; edge < end; edge += 32) {
            u32 target = 0;
            const bool has = edge + lane < end;
            read = graph.targets.get_warp(graph.first_target + edge + lane, target, has);
            if (read != storage::DONE) atomicCAS(code, storage::DONE, read);
            if (has && read == storage::DONE && target < graph.vertices) atomicAdd(&next[target], part);
        }
    }
}

__global__ void begin(float *ranks, u64 vertices, float value) {
    const u64 vertex = blockIdx.x * blockDim.x + threadIdx.x;
    if (vertex < vertices) ranks[vertex] = value;
}

// The ranks as the host finds them. What vertices without edges have is lost.
static std::vector<double> rank(const HostGraph &graph, u32 rounds) {
    std::vector<double> ranks(graph.vertices(), 1.0), next;
    for (u32 round = 0; round < rounds; round++) {
        next.assign(graph.vertices(), 1.0 - KEEPS);
        for (u64 vertex = 0; vertex < graph.vertices(); vertex++) {
            const u64 degree = graph.end(vertex) - graph.begin(vertex);
            for (u64 edge = graph.begin(vertex); edge < graph.end(vertex); edge++) {
                next[graph.targets[edge]] += KEEPS * ranks[vertex] / static_cast<double>(degree);
            }
        }
        ranks.swap(next);
    }
    return ranks;
}

static int run(const char *file, u32 rounds, u32 pages) {
    HostGraph host;
    if (!host.read(file)) return 2;
    const u64 vertices = host.vertices();
    const u32 blocks = static_cast<u32>((vertices + 127) / 128);
    storage::Cache cache;
    float *ranks, *next;
    u32 *code, told = 0;
    CHECK(storage::make(cache, pages));
    CHECK(cudaMalloc(&ranks, vertices * 4));
    CHECK(cudaMalloc(&next, vertices * 4));
    CHECK(cudaMalloc(&code, 4));
    CHECK(cudaMemset(code, 0, 4));
    const Graph graph(cache, vertices, host.targets.size());
    begin<<<blocks, 128>>>(ranks, vertices, 1.0f);
    for (u32 round = 0; round < rounds; round++) {
        begin<<<blocks, 128>>>(next, vertices, 1.0f - KEEPS);
        give<<<WARPS / 4, 128>>>(graph, ranks, next, code);
        CHECK(cudaGetLastError());
        std::swap(ranks, next);
    }
    std::vector<float> found(vertices);
    CHECK(cudaMemcpy(found.data(), ranks, vertices * 4, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&told, code, 4, cudaMemcpyDeviceToHost));
    storage::Told counted;
    CHECK(storage::told(cache, counted));
    if (told != storage::DONE) {
        fprintf(stderr, "a read was answered %x, %s\n", told, storage::meaning(told));
        return 2;
    }
    // Sums of numbers of 24 bits, in any order.
    const std::vector<double> expected = rank(host, rounds);
    u64 wrong = 0;
    for (u64 vertex = 0; vertex < vertices; vertex++) wrong += !(std::abs(found[vertex] - expected[vertex]) <= 1e-4 * expected[vertex]);
    printf("%llu vertices, %u rounds; %llu pages loaded, %llu reads past; %llu wrong\n", vertices, rounds, counted.loaded, counted.past,
           wrong);
    return wrong == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    auto number = [&](int at) { return strtoull(argv[at], nullptr, 0); };
    if (argc == 6 && !strcmp(argv[1], "make") && number(3) > 0) return make(argv[2], number(3), number(4), number(5));
    if (argc == 5 && !strcmp(argv[1], "run")) return run(argv[2], static_cast<u32>(number(3)), static_cast<u32>(number(4)));
    fprintf(stderr, "usage: pagerank make FILE VERTICES EDGES SEED | pagerank run FILE ROUNDS PAGES\n");
    return 2;
}
