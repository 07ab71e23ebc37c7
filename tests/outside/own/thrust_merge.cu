// Merges two sorted rows, and joins and differences of sets: merge path searches, and look-back for the places.
#include "compare.h"

#include <thrust/merge.h>
#include <thrust/set_operations.h>

#include <algorithm>
#include <iterator>

int main(int argc, char **argv) {
    const Program program("thrust_merge", argc, argv);
    const int n = program.large ? (1 << 23) + 5 : 40009;
    std::vector<int> a(n), b(n / 2 + 3), should(a.size() + b.size());
    for (size_t i = 0; i < a.size(); i++) a[i] = hash(i) % 100000;
    for (size_t i = 0; i < b.size(); i++) b[i] = hash(i + 77) % 100000;
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    thrust::device_vector<int> device_a(a.begin(), a.end()), device_b(b.begin(), b.end()), to(should.size());
    thrust::merge(device_a.begin(), device_a.end(), device_b.begin(), device_b.end(), to.begin());
    std::merge(a.begin(), a.end(), b.begin(), b.end(), should.begin());
    same("merge", fetched(to), should);

    to.erase(thrust::set_intersection(device_a.begin(), device_a.end(), device_b.begin(), device_b.end(), to.begin()), to.end());
    should.clear();
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(should));
    same("intersection", fetched(to), should);
    return Program::pass("n=%d", n);
}
