// cuFFT's functions as its documentation tells them, for programs where NVIDIA's header is not: docs/MODULES.md. C++ only.
#pragma once

#include <cstddef>
#include <cuda_runtime.h>

enum cufftResult { CUFFT_SUCCESS, CUFFT_INVALID_PLAN, CUFFT_ALLOC_FAILED, CUFFT_INVALID_TYPE, CUFFT_INVALID_VALUE, CUFFT_INTERNAL_ERROR,
    CUFFT_EXEC_FAILED, CUFFT_SETUP_FAILED, CUFFT_INVALID_SIZE, CUFFT_NOT_IMPLEMENTED = 14, CUFFT_NOT_SUPPORTED = 16 };
enum cufftType { CUFFT_R2C = 0x2a, CUFFT_C2R = 0x2c, CUFFT_C2C = 0x29, CUFFT_D2Z = 0x6a, CUFFT_Z2D = 0x6c, CUFFT_Z2Z = 0x69 };
enum { CUFFT_FORWARD = -1, CUFFT_INVERSE = 1 };
typedef int cufftHandle;
typedef long long Long;
typedef float cufftReal;
typedef double cufftDoubleReal;
typedef float2 cufftComplex;
typedef double2 cufftDoubleComplex;

extern "C" {
cufftResult cufftCreate(cufftHandle *);
cufftResult cufftDestroy(cufftHandle);
cufftResult cufftPlan1d(cufftHandle *, int, cufftType, int);
cufftResult cufftPlan2d(cufftHandle *, int, int, cufftType);
cufftResult cufftPlan3d(cufftHandle *, int, int, int, cufftType);
cufftResult cufftPlanMany(cufftHandle *, int, int *, int *, int, int, int *, int, int, cufftType, int);
cufftResult cufftMakePlan1d(cufftHandle, int, cufftType, int, size_t *);
cufftResult cufftMakePlanMany64(cufftHandle, int, Long *, Long *, Long, Long, Long *, Long, Long, cufftType, Long, size_t *);
cufftResult cufftXtMakePlanMany(cufftHandle, int, Long *, Long *, Long, Long, cudaDataType, Long *, Long, Long, cudaDataType, Long, size_t *, cudaDataType);
cufftResult cufftEstimate1d(int, cufftType, int, size_t *);
cufftResult cufftGetSize(cufftHandle, size_t *);
cufftResult cufftSetStream(cufftHandle, cudaStream_t);
cufftResult cufftSetWorkArea(cufftHandle, void *);
cufftResult cufftSetAutoAllocation(cufftHandle, int);
cufftResult cufftExecC2C(cufftHandle, void *, void *, int);
cufftResult cufftExecZ2Z(cufftHandle, void *, void *, int);
cufftResult cufftExecR2C(cufftHandle, void *, void *);
cufftResult cufftExecC2R(cufftHandle, void *, void *);
cufftResult cufftExecD2Z(cufftHandle, void *, void *);
cufftResult cufftExecZ2D(cufftHandle, void *, void *);
cufftResult cufftXtExec(cufftHandle, void *, void *, int);
cufftResult cufftGetVersion(int *);
cufftResult cufftSetPlanPropertyInt64(cufftHandle, int, Long);
cufftResult cufftGetPlanPropertyInt64(cufftHandle, int, Long *);
cufftResult cufftResetPlanProperty(cufftHandle, int);
cufftResult cufftXtSetGPUs(cufftHandle, int, int *);
}
