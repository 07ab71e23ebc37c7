// A picture of which tones a recording has when: kernels read the file themselves, and the service `cufft` transforms it.
//
//   nvcc -std=c++17 -gencode arch=compute_75,code=compute_75 -I modules/storage/include -I modules/cufft/include \
//       -o spectrogram modules/examples/spectrogram.cu -L target/release -lcufft
//   bulkhead run --module storage=read:data --module cufft -- ./spectrogram SAMPLES WINDOW PICTURE.pgm
//
// Extent 0 has 32-bit floating-point samples of one channel. WINDOW samples at a time, an even number to 65536, are transformed, each
// half a window behind the one before; a column of the picture is one of them, with low tones below. What is written: a line with the
// number of columns, and one for each of 16 of them with its loudest tone, in parts of the sampling rate.
#include <cufft.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <bulkhead_storage.cuh>

using storage::u32;
using storage::u64;

static void check(const char *what, bool is_right, const char *why) {
    if (is_right) return;
    std::fprintf(stderr, "spectrogram: %s: %s\n", what, why);
    std::exit(1);
}
#define CUDA(call)                                                                    \
    do {                                                                              \
        const cudaError_t error = (call);                                             \
        check(#call, error == cudaSuccess, cudaGetErrorString(error));                \
    } while (0)
#define FFT(call) check(#call, (call) == CUFFT_SUCCESS, "see above")

constexpr u32 WARPS = 64;

// Each warp reads a part of the blocks.
__global__ void load(u64 blocks, float *samples, u32 *code) {
    const u64 part = (blocks + WARPS - 1) / WARPS, first = blockIdx.x * part;
    if (first >= blocks) return;
    const u64 count = min(part, blocks - first);
    const u32 read = storage::read_warp(0, first, count, reinterpret_cast<char *>(samples) + first * storage::BLOCK_BYTES);
    if (read != storage::DONE && threadIdx.x == 0) atomicCAS(code, storage::DONE, read);
}

// Hann's window.
__global__ void window(const float *samples, u32 size, u64 columns, float *framed) {
    for (u64 at = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; at < columns * size; at += gridDim.x * blockDim.x) {
        const u64 column = at / size;
        const u32 in = static_cast<u32>(at % size);
        framed[at] = samples[column * (size / 2) + in] * (0.5f - 0.5f * cospif(2.0f * in / size));
    }
}

__global__ void loudness(const float2 *tones, u64 count, float *decibels) {
    for (u64 at = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; at < count; at += gridDim.x * blockDim.x) {
        const float2 tone = tones[at];
        decibels[at] = 10 * log10f(tone.x * tone.x + tone.y * tone.y + 1e-20f);
    }
}

int main(int argc, char **argv) {
    check("arguments", argc == 4, "SAMPLES WINDOW PICTURE.pgm belong here");
    const u64 samples = std::strtoull(argv[1], nullptr, 0);
    const u32 size = static_cast<u32>(std::strtoul(argv[2], nullptr, 0));
    check("WINDOW", size >= 4 && size <= 65536 && size % 2 == 0, "an even number from 4 to 65536 belongs here");
    check("SAMPLES", samples >= size && samples <= 1ull << 32, "a window of samples at least belongs here");
    const u64 columns = (samples - size) / (size / 2) + 1, tones = size / 2 + 1;
    const u64 blocks = (samples * sizeof(float) + storage::BLOCK_BYTES - 1) / storage::BLOCK_BYTES;

    float *read, *framed, *decibels;
    float2 *transformed;
    u32 *code, loaded = 0;
    CUDA(cudaMalloc(&read, blocks * storage::BLOCK_BYTES));
    CUDA(cudaMalloc(&framed, columns * size * sizeof(float)));
    CUDA(cudaMalloc(&transformed, columns * tones * sizeof(float2)));
    CUDA(cudaMalloc(&decibels, columns * tones * sizeof(float)));
    CUDA(cudaMalloc(&code, sizeof *code));
    CUDA(cudaMemset(code, 0, sizeof *code));
    load<<<WARPS, 32>>>(blocks, read, code);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(&loaded, code, sizeof loaded, cudaMemcpyDeviceToHost));
    check("reading the file", loaded == storage::DONE,
          loaded == storage::RANGE ? "it has fewer samples" : "the module refuses: see bulkhead_storage.cuh");

    cufftHandle plan;
    int side = static_cast<int>(size);
    FFT(cufftPlanMany(&plan, 1, &side, nullptr, 1, 0, nullptr, 1, 0, CUFFT_R2C, static_cast<int>(columns)));
    window<<<256, 256>>>(read, size, columns, framed);
    FFT(cufftExecR2C(plan, framed, transformed));
    loudness<<<256, 256>>>(transformed, columns * tones, decibels);
    std::vector<float> all(columns * tones);
    CUDA(cudaMemcpy(all.data(), decibels, all.size() * sizeof(float), cudaMemcpyDeviceToHost));
    FFT(cufftDestroy(plan));

    std::printf("%llu columns of %llu tones\n", columns, tones);
    for (u64 shown = 0; shown < std::min<u64>(columns, 16); shown++) {
        const u64 column = shown * columns / std::min<u64>(columns, 16);
        const float *begin = all.data() + column * tones;
        const auto loudest = static_cast<double>(std::max_element(begin, begin + tones) - begin);
        std::printf("column %llu: %.6f\n", column, loudest / size);
    }
    const float most = *std::max_element(all.begin(), all.end()), range = 96;
    std::FILE *picture = std::fopen(argv[3], "wb");
    check(argv[3], picture != nullptr, "cannot be written");
    std::fprintf(picture, "P5\n%llu %llu\n255\n", columns, tones);
    std::vector<unsigned char> row(columns);
    for (u64 tone = tones; tone-- > 0;) {
        for (u64 column = 0; column < columns; column++) {
            const float part = (all[column * tones + tone] - most + range) / range;
            row[column] = static_cast<unsigned char>(255 * std::min(1.0f, std::max(0.0f, part)));
        }
        std::fwrite(row.data(), 1, row.size(), picture);
    }
    check(argv[3], std::fclose(picture) == 0, "cannot be written");
    return 0;
}
