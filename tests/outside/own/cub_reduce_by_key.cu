// Sums runs of equal keys, and writes runs as lengths: look-back by 16-byte descriptors of key and sum.
#include "compare.h"

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_run_length_encode.cuh>

struct Sum {
    template <typename T>
    __host__ __device__ T operator()(T a, T b) const { return a + b; }
};

template <typename Value>
void by_key(const char *what, int n, unsigned run) {
    std::vector<int> keys(n), unique;
    std::vector<Value> values(n), sums;
    std::vector<int> lengths;
    for (int i = 0; i < n; i++) {
        keys[i] = hash(i / run) % 3;
        values[i] = hash(i + 5) % 100;
        if (i == 0 || keys[i] != keys[i - 1]) {
            unique.push_back(keys[i]);
            sums.push_back(0);
            lengths.push_back(0);
        }
        sums.back() += values[i];
        lengths.back()++;
    }
    thrust::device_vector<int> device_keys(keys.begin(), keys.end()), device_unique(n), device_lengths(n), count(1);
    thrust::device_vector<Value> device_values(values.begin(), values.end()), device_sums(n);
    CUB(cub::DeviceReduce::ReduceByKey, raw(device_keys), raw(device_unique), raw(device_values), raw(device_sums), raw(count), Sum(), n);
    const int found = count[0];
    if (found != static_cast<int>(unique.size())) Program::fail("%s: %d runs, not %zu", what, found, unique.size());
    device_unique.resize(found);
    device_sums.resize(found);
    same(what, fetched(device_unique), unique);
    same(what, fetched(device_sums), sums);
    device_unique.resize(n);
    CUB(cub::DeviceRunLengthEncode::Encode, raw(device_keys), raw(device_unique), raw(device_lengths), raw(count), n);
    device_lengths.resize(count[0]);
    same("lengths", fetched(device_lengths), lengths);
}

int main(int argc, char **argv) {
    const Program program("cub_reduce_by_key", argc, argv);
    const int n = program.large ? (1 << 24) + 5 : 80021;
    by_key<int>("int", n, 3);
    by_key<long long>("long long", n, 700);
    return Program::pass("n=%d", n);
}
