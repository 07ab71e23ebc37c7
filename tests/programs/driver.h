// The driver's calls, which the runtime finds: `DRIVER(cuModuleLoadData)` makes `cuModuleLoadData_`.
#pragma once

#include "program.h"

#include <cuda.h>

template <class F> static F driver(const char *name) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    CHECK(cudaGetDriverEntryPointByVersion(name, &found, 13000, cudaEnableDefault, &result));
    if (!found) Program::fail("the driver has no %s", name);
    return reinterpret_cast<F>(found);
}

#define DRIVER(name) auto name##_ = driver<decltype(&name)>(#name)
