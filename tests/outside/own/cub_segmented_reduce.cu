// Reduces segments of many lengths, empty ones too, and finds the places of their smallest.
#include "compare.h"

#include <cub/device/device_segmented_reduce.cuh>

#include <climits>

int main(int argc, char **argv) {
    const Program program("cub_segmented_reduce", argc, argv);
    const int segments = program.large ? 100003 : 503;
    std::vector<int> offsets(1), host, sums(segments), smallest(segments, INT_MAX);
    for (int segment = 0; segment < segments; segment++) {
        const int length = segment % 7 == 0 ? 0 : hash(segment) % 500;
        for (int i = 0; i < length; i++) {
            host.push_back(static_cast<int>(hash(host.size()) % 2001) - 1000);
            sums[segment] += host.back();
            smallest[segment] = std::min(smallest[segment], host.back());
        }
        offsets.push_back(static_cast<int>(host.size()));
    }
    thrust::device_vector<int> device(host.begin(), host.end()), borders(offsets.begin(), offsets.end()), to(segments);
    CUB(cub::DeviceSegmentedReduce::Sum, raw(device), raw(to), segments, raw(borders), raw(borders) + 1);
    same("sums", fetched(to), sums);
    CUB(cub::DeviceSegmentedReduce::Min, raw(device), raw(to), segments, raw(borders), raw(borders) + 1);
    same("smallest", fetched(to), smallest);
    return Program::pass("%d segments of %zu elements", segments, host.size());
}
