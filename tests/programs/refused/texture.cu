// A texture fetch: its handle could be another tenant's.
#include "../program.h"

__global__ void fetch(cudaTextureObject_t texture, float *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex1Dfetch<float>(texture, n - 1 - i);
}

int main(int argc, char **argv) {
    const Program program("texture", argc, argv);
    const int n = 256;
    float values[n], *device_in, *device_out;
    for (int i = 0; i < n; i++) values[i] = uniform(i);
    CHECK(cudaMalloc(&device_in, sizeof values));
    CHECK(cudaMalloc(&device_out, sizeof values));
    CHECK(cudaMemcpy(device_in, values, sizeof values, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = device_in;
    resource.res.linear.desc = cudaCreateChannelDesc<float>();
    resource.res.linear.sizeInBytes = sizeof values;
    cudaTextureDesc description = {};
    description.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture = 0;
    CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    fetch<<<n / 64, 64>>>(texture, device_out, n);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(values, device_out, sizeof values, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        if (values[i] != uniform(n - 1 - i)) Program::fail("values[%d] = %g", i, values[i]);
    }
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    return Program::pass("%d fetches", n);
}
