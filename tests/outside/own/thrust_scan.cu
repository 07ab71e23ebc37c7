// Prefix sums of one and of eight bytes, and maxima: decoupled look-back by 8-byte and by 16-byte descriptors.
#include "compare.h"

#include <thrust/functional.h>
#include <thrust/scan.h>

#include <algorithm>

template <typename T>
void scanned(const char *what, int n, unsigned seed) {
    std::vector<T> host(n), should(n);
    for (int i = 0; i < n; i++) host[i] = static_cast<T>(hash(i + seed) % 1000);
    thrust::device_vector<T> device(host.begin(), host.end()), to(n);
    thrust::inclusive_scan(device.begin(), device.end(), to.begin());
    T sum = 0;
    for (int i = 0; i < n; i++) should[i] = sum += host[i];
    same(what, fetched(to), should);
    thrust::exclusive_scan(device.begin(), device.end(), to.begin(), T(7));
    sum = 7;
    for (int i = 0; i < n; i++) {
        should[i] = sum;
        sum += host[i];
    }
    same(what, fetched(to), should);
    thrust::inclusive_scan(device.begin(), device.end(), device.begin(), thrust::maximum<T>());
    for (int i = 1; i < n; i++) host[i] = std::max(host[i - 1], host[i]);
    same(what, fetched(device), host);
}

int main(int argc, char **argv) {
    const Program program("thrust_scan", argc, argv);
    const int n = program.large ? (1 << 24) + 5 : 150011;
    scanned<int>("int", n, 1);
    scanned<long long>("long long", n, 2);
    return Program::pass("n=%d", n);
}
