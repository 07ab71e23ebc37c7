// Takes the place of CUB's header of this name, which needs Catch2: its examples include it for no more than these.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <type_traits>

#include <cuda/std/cmath>

namespace c2h {
template <typename T>
bool isnan(T value) {
    if constexpr (std::is_floating_point_v<T>) return cuda::std::isnan(value);
    return false;
}

// The bits of a value as another type of the same size.
template <typename To, typename From>
__host__ __device__ To SafeBitCast(const From &from) {
    static_assert(sizeof(To) == sizeof(From));
    To to{};
    memcpy(&to, &from, sizeof to);
    return to;
}
}  // namespace c2h
