// Sums, norms and extremes of what a function makes of each element.
#include "compare.h"

#include <thrust/extrema.h>
#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/transform_reduce.h>

#include <algorithm>

struct Square {
    __host__ __device__ long long operator()(int x) const { return static_cast<long long>(x) * x; }
};

int main(int argc, char **argv) {
    const Program program("thrust_transform_reduce", argc, argv);
    const int n = program.large ? (1 << 24) + 5 : 200017;
    std::vector<int> host(n);
    long long squares = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        host[i] = static_cast<int>(hash(i) % 20001) - 10000;
        squares += static_cast<long long>(host[i]) * host[i];
        sum += host[i];
    }
    const thrust::device_vector<int> device(host.begin(), host.end());
    const long long is = thrust::transform_reduce(device.begin(), device.end(), Square(), 0LL, thrust::plus<long long>());
    if (is != squares) Program::fail("squares: %lld, not %lld", is, squares);
    const long long all = thrust::reduce(device.begin(), device.end(), 0LL);
    if (all != sum) Program::fail("sum: %lld, not %lld", all, sum);
    const auto place = thrust::max_element(device.begin(), device.end()) - device.begin();
    const auto should = std::max_element(host.begin(), host.end()) - host.begin();
    if (place != should) Program::fail("the largest is at %td, not %td", place, should);
    return Program::pass("n=%d", n);
}
