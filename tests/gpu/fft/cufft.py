"""cuFFT by its C names, on memory of the CUDA driver: what comes first in the library path."""

import ctypes

import numpy

HANDLE = ctypes.c_int
LONG = ctypes.c_longlong
# cudaDataType: elements of the two ends of a transform.
R_32F, R_64F, C_32F, C_64F = 0, 1, 4, 5
NUMBERS = {R_32F: numpy.float32, R_64F: numpy.float64, C_32F: numpy.complex64, C_64F: numpy.complex128}
FORWARD, INVERSE = -1, 1

driver = ctypes.CDLL("libcuda.so.1")
library = ctypes.CDLL("libcufft.so.12")


def check(call, code):
    if code != 0:
        raise RuntimeError(f"{call} answers {code}")


def begin():
    """Makes the first device's context current."""
    context = ctypes.c_void_p()
    check("cuInit", driver.cuInit(0))
    check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check("cuCtxSetCurrent", driver.cuCtxSetCurrent(context))


class Memory:
    """Memory of the device, which begins with an array's bytes."""

    def __init__(self, content):
        self.address, self.bytes = ctypes.c_uint64(), max(content.nbytes, 16)
        check("cuMemAlloc", driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(self.bytes)))
        source = numpy.ascontiguousarray(content)
        check("cuMemcpyHtoD", driver.cuMemcpyHtoD_v2(self.address, ctypes.c_void_p(source.ctypes.data),
                                                      ctypes.c_size_t(source.nbytes)))

    def read(self, kind, count):
        found = numpy.empty(count, kind)
        check("cuCtxSynchronize", driver.cuCtxSynchronize())
        check("cuMemcpyDtoH", driver.cuMemcpyDtoH_v2(ctypes.c_void_p(found.ctypes.data), self.address,
                                                      ctypes.c_size_t(found.nbytes)))
        return found

    def free(self):
        check("cuMemFree", driver.cuMemFree_v2(self.address))


class Plan:
    """A plan of `cufftXtMakePlanMany`. `input` and `output` are (embedding or None, stride, distance, type of elements)."""

    def __init__(self, sides, input, output, batch):
        self.handle, area = HANDLE(), ctypes.c_size_t()
        kind = C_64F if output[3] in (R_64F, C_64F) else C_32F
        check("cufftCreate", library.cufftCreate(ctypes.byref(self.handle)))

        def longs(numbers):
            return None if numbers is None else (LONG * len(numbers))(*numbers)

        code = library.cufftXtMakePlanMany(
            self.handle, len(sides), longs(sides), longs(input[0]), LONG(input[1]), LONG(input[2]), input[3],
            longs(output[0]), LONG(output[1]), LONG(output[2]), output[3], LONG(batch), ctypes.byref(area), kind)
        if code != 0:
            self.destroy()
        check("cufftXtMakePlanMany", code)

    def execute(self, source, target, way):
        code = library.cufftXtExec(self.handle, ctypes.c_void_p(source.address.value), ctypes.c_void_p(target.address.value), way)
        check("cufftXtExec", code)

    def destroy(self):
        check("cufftDestroy", library.cufftDestroy(self.handle))
