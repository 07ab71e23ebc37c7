// How these programs look at what they computed.
#pragma once

#include "program.h"

#include <thrust/device_vector.h>
#include <thrust/host_vector.h>

#include <vector>

template <typename T>
std::vector<T> fetched(const thrust::device_vector<T> &from) {
    std::vector<T> to(from.size());
    if (!to.empty()) CHECK(cudaMemcpy(to.data(), thrust::raw_pointer_cast(from.data()), to.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
}

// Ends the program at the first element that is not what the host computed.
template <typename T>
void same(const char *what, const std::vector<T> &is, const std::vector<T> &should) {
    if (is.size() != should.size()) Program::fail("%s: %zu elements, not %zu", what, is.size(), should.size());
    for (size_t i = 0; i < is.size(); i++) {
        if (!(is[i] == should[i])) {
            Program::fail("%s: element %zu of %zu is %.9g, not %.9g", what, i, is.size(), static_cast<double>(is[i]), static_cast<double>(should[i]));
        }
    }
}

// Calls one of CUB's functions twice: for the size of its temporary storage, then with that.
#define CUB(function, ...)                                             \
    do {                                                               \
        size_t bytes = 0;                                              \
        CHECK(function(nullptr, bytes, __VA_ARGS__));                  \
        thrust::device_vector<unsigned char> storage(bytes + 1);       \
        CHECK(function(thrust::raw_pointer_cast(storage.data()), bytes, __VA_ARGS__)); \
        CHECK_KERNEL();                                                \
    } while (0)

template <typename T>
T *raw(thrust::device_vector<T> &vector) {
    return thrust::raw_pointer_cast(vector.data());
}
