// Drops equal neighbours: a selection whose places are found by look-back over the tiles before.
#include "compare.h"

#include <thrust/unique.h>

#include <algorithm>

template <typename T>
void distinct(const char *what, int n, unsigned runs) {
    std::vector<T> host(n);
    for (int i = 0; i < n; i++) host[i] = static_cast<T>(hash(i / runs + runs) % 5);
    thrust::device_vector<T> device(host.begin(), host.end());
    device.erase(thrust::unique(device.begin(), device.end()), device.end());
    host.erase(std::unique(host.begin(), host.end()), host.end());
    same(what, fetched(device), host);
}

int main(int argc, char **argv) {
    const Program program("thrust_unique", argc, argv);
    const int n = program.large ? (1 << 24) + 5 : 120011;
    distinct<int>("int", n, 1);
    distinct<long long>("long long", n, 3);
    return Program::pass("n=%d", n);
}
