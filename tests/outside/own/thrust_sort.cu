// Sorts keys of three types: radix sort (integers, floats) and merge sort (by a function).
#include "compare.h"

#include <thrust/sort.h>

#include <algorithm>

struct Backwards {
    __host__ __device__ bool operator()(int a, int b) const { return a > b; }
};

template <typename T>
void sorted(const char *what, int n, unsigned seed) {
    std::vector<T> host(n);
    for (int i = 0; i < n; i++) host[i] = static_cast<T>(static_cast<int>(hash(i + seed)) / 7);
    thrust::device_vector<T> device(host.begin(), host.end());
    thrust::sort(device.begin(), device.end());
    std::sort(host.begin(), host.end());
    same(what, fetched(device), host);
}

int main(int argc, char **argv) {
    const Program program("thrust_sort", argc, argv);
    const int n = program.large ? (1 << 24) + 5 : 60013;
    sorted<unsigned>("unsigned", n, 1);
    sorted<float>("float", n / 2, 2);
    sorted<long long>("long long", n / 4, 3);
    std::vector<int> host(n / 4);
    for (size_t i = 0; i < host.size(); i++) host[i] = static_cast<int>(hash(i + 4)) / 3;
    thrust::device_vector<int> device(host.begin(), host.end());
    thrust::sort(device.begin(), device.end(), Backwards());
    std::sort(host.begin(), host.end(), Backwards());
    same("by a function", fetched(device), host);
    return Program::pass("n=%d", n);
}
