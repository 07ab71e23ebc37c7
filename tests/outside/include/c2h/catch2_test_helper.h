// Takes the place of CUB's header of this name, which needs Catch2: its examples include it for no more than these.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <type_traits>

#include <cuda/std/cmath>

namespace c2h {
template <typename T>
bool isnan(T value) {
    if constexpr (std::is_floating_point_v<T>) return cuda::std::isnan(value);
    return false;
}
}  // namespace c2h
