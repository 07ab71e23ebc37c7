// The two calls of CUDA's header of this name, which the pinned toolchain does not have.
#pragma once

#include <driver_types.h>

extern "C" {
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);
}
