// printf in a kernel: a call into the driver's own code.
#include "program.h"

__global__ void greet() { printf("thread %u of %u\n", threadIdx.x, blockDim.x); }

int main(int argc, char **argv) {
    const Program program("kernel_printf", argc, argv);
    greet<<<1, 4>>>();
    CHECK_KERNEL();
    return Program::pass("4 lines above");
}
