// Copies of every direction and of awkward sizes and offsets, from pageable and pinned memory.
#include "program.h"

#include <vector>

static void expect(const std::vector<unsigned char> &got, const std::vector<unsigned char> &expected, const char *copy) {
    for (size_t i = 0; i < expected.size(); i++) {
        if (got[i] != expected[i]) Program::fail("%s: byte %zu is %#x, not %#x", copy, i, got[i], expected[i]);
    }
}

int main(int argc, char **argv) {
    const Program program("copies", argc, argv);
    const size_t n = program.large ? (96u << 20) + 7 : (3u << 20) + 7;
    std::vector<unsigned char> source(n), expected(n), got(n);
    for (size_t i = 0; i < n; i++) source[i] = static_cast<unsigned char>(hash(i));
    unsigned char *first, *second, *pinned;
    CHECK(cudaMalloc(&first, n));
    CHECK(cudaMalloc(&second, n));
    CHECK(cudaHostAlloc(&pinned, n, cudaHostAllocDefault));

    CHECK(cudaMemcpy(first, source.data(), n, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(second, first, n, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(got.data(), second, n, cudaMemcpyDeviceToHost));
    expect(got, source, "host, device, device, host");

    // Small pieces at odd places; what lies between them must stay.
    expected = source;
    const size_t sizes[] = {1, 2, 3, 5, 63, 64, 65, 4095, 4097, 65537, 1 << 20};
    size_t at = 1;
    for (size_t size : sizes) {
        CHECK(cudaMemcpy(second + at, source.data() + n / 2 + at, size, cudaMemcpyHostToDevice));
        std::memcpy(&expected[at], &source[n / 2 + at], size);
        at += size + 1;
    }
    CHECK(cudaMemcpy(got.data() + 3, second + 3, n - 5, cudaMemcpyDeviceToHost));
    std::memcpy(got.data(), expected.data(), 3);
    std::memcpy(&got[n - 2], &expected[n - 2], 2);
    expect(got, expected, "pieces");

    // From and to pinned memory, in stream order.
    std::memset(pinned, 0, n);
    CHECK(cudaMemcpyAsync(pinned, first, n, cudaMemcpyDeviceToHost, 0));
    CHECK(cudaStreamSynchronize(0));
    std::memcpy(got.data(), pinned, n);
    expect(got, source, "device to pinned");
    for (size_t i = 0; i < n; i++) pinned[i] ^= 0xff;
    CHECK(cudaMemcpyAsync(second, pinned, n, cudaMemcpyHostToDevice, 0));
    CHECK(cudaMemcpyAsync(first, second, n, cudaMemcpyDeviceToDevice, 0));
    CHECK(cudaMemcpy(got.data(), first, n, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++) expected[i] = source[i] ^ 0xff;
    expect(got, expected, "pinned to device");

    // The driver finds the direction from the addresses.
    CHECK(cudaMemcpy(second, source.data(), n, cudaMemcpyDefault));
    CHECK(cudaMemcpy(got.data(), second, n, cudaMemcpyDefault));
    expect(got, source, "cudaMemcpyDefault");
    CHECK(cudaMemcpy(got.data(), expected.data(), n, cudaMemcpyHostToHost));
    expect(got, expected, "host to host");

    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(first));
    CHECK(cudaFree(second));
    return Program::pass("n=%zu", n);
}
