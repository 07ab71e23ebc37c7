// Selects by flags and by a function, and partitions in three.
#include "compare.h"

#include <cub/device/device_partition.cuh>
#include <cub/device/device_select.cuh>

struct Below {
    int limit;
    __host__ __device__ bool operator()(int x) const { return x < limit; }
};

int main(int argc, char **argv) {
    const Program program("cub_select", argc, argv);
    const int n = program.large ? (1 << 24) + 5 : 90007;
    std::vector<int> host(n), chosen, flagged, small, middle, rest;
    std::vector<unsigned char> flags(n);
    for (int i = 0; i < n; i++) {
        host[i] = hash(i) % 1000;
        flags[i] = hash(i + 9) % 4 == 0;
        if (host[i] < 300) chosen.push_back(host[i]);
        if (flags[i]) flagged.push_back(host[i]);
        (host[i] < 300 ? small : host[i] < 600 ? middle : rest).push_back(host[i]);
    }
    thrust::device_vector<int> device(host.begin(), host.end()), to(n), second(n), third(n), count(2);
    const thrust::device_vector<unsigned char> device_flags(flags.begin(), flags.end());
    const unsigned char *bits = thrust::raw_pointer_cast(device_flags.data());
    CUB(cub::DeviceSelect::If, raw(device), raw(to), raw(count), n, Below{300});
    to.resize(count[0]);
    same("if", fetched(to), chosen);
    to.resize(n);
    CUB(cub::DeviceSelect::Flagged, raw(device), bits, raw(to), raw(count), n);
    to.resize(count[0]);
    same("flagged", fetched(to), flagged);
    to.resize(n);
    CUB(cub::DevicePartition::If, raw(device), raw(to), raw(second), raw(third), raw(count), n, Below{300}, Below{600});
    to.resize(count[0]);
    second.resize(count[1]);
    third.resize(n - count[0] - count[1]);
    same("first part", fetched(to), small);
    same("second part", fetched(second), middle);
    same("third part", fetched(third), rest);
    return Program::pass("n=%d", n);
}
