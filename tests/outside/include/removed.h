// Names that CUDA 13 no longer has, for programs that are older: included before all else by -include.
#pragma once

#include <cuda_runtime_api.h>

#define cudaThreadSynchronize cudaDeviceSynchronize
#define cudaThreadExit cudaDeviceReset
