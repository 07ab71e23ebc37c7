// A texture whose colors are those of sRGB: only devices know how they round them.
#include "../program.h"

__global__ void fetch(cudaTextureObject_t texture, float4 *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex2D<float4>(texture, i + 0.5f, 0.5f);
}

int main(int argc, char **argv) {
    const Program program("texture_srgb", argc, argv);
    const int n = 256;
    uchar4 colors[n];
    float4 values[n], *device;
    for (int i = 0; i < n; i++) colors[i] = make_uchar4(i, 255 - i, i / 2, 255);
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, n, 1));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, colors, sizeof colors, sizeof colors, 1, cudaMemcpyHostToDevice));
    CHECK(cudaMalloc(&device, sizeof values));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc description = {};
    description.readMode = cudaReadModeNormalizedFloat;
    description.sRGB = 1;
    cudaTextureObject_t texture = 0;
    CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    fetch<<<n / 64, 64>>>(texture, device, n);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values, device, sizeof values, cudaMemcpyDeviceToHost));
    if (values[255].x != 1 || values[0].x != 0) Program::fail("black is %g, white %g", values[0].x, values[255].x);
    return Program::pass("%d colors", n);
}
