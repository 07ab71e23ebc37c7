// Rows at a pitch: cudaMallocPitch, cudaMemset2D and cudaMemcpy2D.
#include "program.h"

#include <vector>

__global__ void brighten(unsigned char *image, size_t pitch, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) image[y * pitch + x] += static_cast<unsigned char>(x + 3 * y);
}

int main(int argc, char **argv) {
    const Program program("pitched", argc, argv);
    const int width = program.large ? 3001 : 301, height = program.large ? 2003 : 103;
    std::vector<unsigned char> image(static_cast<size_t>(width) * height);
    for (size_t i = 0; i < image.size(); i++) image[i] = static_cast<unsigned char>(hash(i));
    const std::vector<unsigned char> before(image);

    unsigned char *device;
    size_t pitch = 0;
    CHECK(cudaMallocPitch(&device, &pitch, width, height));
    if (pitch < static_cast<size_t>(width)) Program::fail("a pitch of %zu for %d bytes", pitch, width);
    CHECK(cudaMemcpy2D(device, pitch, image.data(), width, width, height, cudaMemcpyHostToDevice));
    CHECK(cudaMemset2D(device + 2 * pitch + 5, pitch, 0x11, 10, 4));
    const dim3 block(32, 8), grid((width + 31) / 32, (height + 7) / 8);
    brighten<<<grid, block>>>(device, pitch, width, height);
    CHECK_KERNEL();
    CHECK(cudaMemcpy2D(image.data(), width, device, pitch, width, height, cudaMemcpyDeviceToHost));

    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            const size_t i = static_cast<size_t>(y) * width + x;
            const bool set = x >= 5 && x < 15 && y >= 2 && y < 6;
            const unsigned char expected = static_cast<unsigned char>((set ? 0x11 : before[i]) + x + 3 * y);
            if (image[i] != expected) Program::fail("(%d, %d): %#x, not %#x", x, y, image[i], expected);
        }
    }
    CHECK(cudaFree(device));
    return Program::pass("%dx%d at a pitch of %zu", width, height, pitch);
}
