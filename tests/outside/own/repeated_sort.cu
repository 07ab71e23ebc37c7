// Sorts the same keys of eight bytes again and again: four blocks that look back at each other, eight passes a sort.
#include "compare.h"

#include <thrust/sort.h>

#include <algorithm>

int main(int argc, char **argv) {
    const Program program("repeated_sort", argc, argv);
    const int n = 15003, rounds = program.large ? 10000 : 300;
    std::vector<long long> host(n);
    for (int i = 0; i < n; i++) host[i] = static_cast<int>(hash(i + 3)) / 7;
    std::vector<long long> should = host;
    std::sort(should.begin(), should.end());
    for (int round = 0; round < rounds; round++) {
        thrust::device_vector<long long> device(host.begin(), host.end());
        thrust::sort(device.begin(), device.end());
        same("sorted", fetched(device), should);
    }
    return Program::pass("%d rounds", rounds);
}
