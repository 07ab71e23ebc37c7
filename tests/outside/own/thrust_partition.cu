// Partitions by a function, and copies by one: both keep the order of what is chosen.
#include "compare.h"

#include <thrust/copy.h>
#include <thrust/partition.h>

#include <algorithm>
#include <iterator>

struct Odd {
    __host__ __device__ bool operator()(int x) const { return x & 1; }
};

int main(int argc, char **argv) {
    const Program program("thrust_partition", argc, argv);
    const int n = program.large ? (1 << 24) + 5 : 100019;
    std::vector<int> host(n), odd;
    for (int i = 0; i < n; i++) host[i] = hash(i) >> 3;
    thrust::device_vector<int> device(host.begin(), host.end()), to(n);
    to.erase(thrust::copy_if(device.begin(), device.end(), to.begin(), Odd()), to.end());
    std::copy_if(host.begin(), host.end(), std::back_inserter(odd), Odd());
    same("copy_if", fetched(to), odd);
    const auto border = thrust::stable_partition(device.begin(), device.end(), Odd()) - device.begin();
    const auto should = std::stable_partition(host.begin(), host.end(), Odd()) - host.begin();
    if (border != should) Program::fail("the border is %td, not %td", border, should);
    same("partition", fetched(device), host);
    return Program::pass("n=%d", n);
}
