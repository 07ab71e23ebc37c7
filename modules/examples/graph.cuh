// Graphs in files, for the examples that search and rank them.
//
// A file has words of 64 bits: how many vertices and edges there are, where each vertex's edges begin, and where they end; then a
// word of 32 bits for each edge, the vertex it leads to; whole blocks in all.
#pragma once

#include <cmath>
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

// A graph as kernels read it: extent 0 has the file.
struct Graph {
    u64 vertices, edges;
    storage::array<u64> begins;
    storage::array<u32> targets;
    u64 first_target;  // where they begin, in words of 32 bits

    Graph(const storage::Cache &cache, u64 vertices, u64 edges)
        : vertices(vertices), edges(edges), begins(cache, 0, vertices + 3), targets(cache, 0, 2 * (vertices + 3) + edges),
          first_target(2 * (vertices + 3)) {}
};

// The same as the host reads it.
struct HostGraph {
    std::vector<u64> head;
    std::vector<u32> targets;

    u64 vertices() const { return head[0]; }
    u64 begin(u64 vertex) const { return head[2 + vertex]; }
    u64 end(u64 vertex) const { return head[3 + vertex]; }

    bool read(const char *file) {
        FILE *from = fopen(file, "rb");
        head.resize(2);
        bool whole = from != nullptr && fread(head.data(), 8, 2, from) == 2 && head[0] > 0;
        if (whole) {
            const u64 vertices = head[0], edges = head[1];
            head.resize(vertices + 3);
            targets.resize(edges);
            whole = fread(&head[2], 8, vertices + 1, from) == vertices + 1 && fread(targets.data(), 4, edges, from) == edges;
        }
        if (from != nullptr) fclose(from);
        if (!whole) fprintf(stderr, "%s is no graph\n", file);
        return whole;
    }
};

// Writes a random graph.
inline int make(const char *file, u64 vertices, u64 edges, u64 seed) {
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
