// Radix sort of pairs: equal keys keep their order; all bits, some bits, and down.
#include "compare.h"

#include <cub/device/device_radix_sort.cuh>

#include <algorithm>
#include <numeric>

int main(int argc, char **argv) {
    const Program program("cub_sort_pairs", argc, argv);
    const int n = program.large ? (1 << 24) + 5 : 50021;
    std::vector<unsigned> keys(n), should_keys(n);
    std::vector<int> order(n);
    for (int i = 0; i < n; i++) keys[i] = hash(i) % 30000;
    thrust::device_vector<unsigned> from(keys.begin(), keys.end()), to(n);
    std::iota(order.begin(), order.end(), 0);
    thrust::device_vector<int> values(order.begin(), order.end()), to_values(n);

    CUB(cub::DeviceRadixSort::SortPairs, raw(from), raw(to), raw(values), raw(to_values), n);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] < keys[b]; });
    for (int i = 0; i < n; i++) should_keys[i] = keys[order[i]];
    same("keys", fetched(to), should_keys);
    same("values", fetched(to_values), order);

    CUB(cub::DeviceRadixSort::SortPairsDescending, raw(from), raw(to), raw(values), raw(to_values), n, 4, 12);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return (keys[a] >> 4 & 255) > (keys[b] >> 4 & 255); });
    same("values by some bits", fetched(to_values), order);
    return Program::pass("n=%d", n);
}
