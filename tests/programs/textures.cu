// Textures of one to three dimensions, layers and cubes, of arrays and of plain memory, against a model on the host.
#include "program.h"

#include <cmath>
#include <cuda_fp16.h>
#include <vector>

struct Place {
    float x, y, z;
    int layer;
};

enum Shape { ONE, TWO, THREE, LAYERS_OF_ONE, LAYERS_OF_TWO, CUBE, CUBES };
const char *const SHAPES[] = {"1D", "2D", "3D", "layered 1D", "layered 2D", "cube", "layered cube"};

__device__ float4 wide(float4 value) { return value; }
__device__ float4 wide(float value) { return make_float4(value, 0, 0, 0); }
__device__ float4 wide(float2 value) { return make_float4(value.x, value.y, 0, 0); }
__device__ float4 wide(uchar4 value) { return make_float4(value.x, value.y, value.z, value.w); }
__device__ float4 wide(short2 value) { return make_float4(value.x, value.y, 0, 0); }
__device__ float4 wide(unsigned value) { return make_float4(value, 0, 0, 0); }

template <typename T> __global__ void sample(cudaTextureObject_t texture, Shape shape, const Place *places,
                                             float4 *results, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const Place p = places[i];
    T value{};
    switch (shape) {
    case ONE: value = tex1D<T>(texture, p.x); break;
    case TWO: value = tex2D<T>(texture, p.x, p.y); break;
    case THREE: value = tex3D<T>(texture, p.x, p.y, p.z); break;
    case LAYERS_OF_ONE: value = tex1DLayered<T>(texture, p.x, p.layer); break;
    case LAYERS_OF_TWO: value = tex2DLayered<T>(texture, p.x, p.y, p.layer); break;
    case CUBE: value = texCubemap<T>(texture, p.x, p.y, p.z); break;
    case CUBES: value = texCubemapLayered<T>(texture, p.x, p.y, p.z, p.layer); break;
    }
    results[i] = wide(value);
}

// A texel in memory, and what it counts as.
struct Float1 {
    float v;
    static const int channels = 1;
    static void make(Float1 &t, unsigned h) { t.v = static_cast<float>(h % 2000) / 16 - 60; }
    float at(int) const { return v; }
};
struct Float4 {
    float v[4];
    static const int channels = 4;
    static void make(Float4 &t, unsigned h) {
        for (int c = 0; c < 4; c++) t.v[c] = static_cast<float>((h >> 4 * c) % 97) / 8 - 5;
    }
    float at(int c) const { return v[c]; }
};
struct Bytes4 {
    unsigned char v[4];
    static const int channels = 4;
    static void make(Bytes4 &t, unsigned h) { memcpy(t.v, &h, 4); }
    float at(int c) const { return v[c]; }
};
struct Shorts2 {
    short v[2];
    static const int channels = 2;
    static void make(Shorts2 &t, unsigned h) { memcpy(t.v, &h, 4); }
    float at(int c) const { return v[c]; }
};
struct Halves2 {
    __half v[2];
    static const int channels = 2;
    static void make(Halves2 &t, unsigned h) {
        t.v[0] = __float2half(static_cast<float>(h % 512) / 4);
        t.v[1] = __float2half(-static_cast<float>(h / 512 % 512) / 8);
    }
    float at(int c) const { return __half2float(v[c]); }
};

struct Extents {
    int width, height, depth;
};

struct Reading {
    cudaTextureAddressMode mode;
    bool linear, normalized;
    // What an integer is divided by where it is read as a part of 1; 0 where it is not.
    float parts;
};

int reflect(int i, int n, cudaTextureAddressMode mode) {
    if (mode == cudaAddressModeWrap) return ((i % n) + n) % n;
    if (mode == cudaAddressModeMirror) {
        const int m = ((i % (2 * n)) + 2 * n) % (2 * n);
        return m < n ? m : 2 * n - 1 - m;
    }
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

template <typename Texel> struct Model {
    Extents extents;
    int layers;
    std::vector<Texel> texels;

    float texel(int x, int y, int z, int c, const Reading &how, const float *border) const {
        const int n[3] = {extents.width, extents.height, extents.depth};
        int i[3] = {x, y, z};
        for (int axis = 0; axis < 3; axis++) {
            const bool outside = i[axis] < 0 || i[axis] >= n[axis];
            if (outside && how.mode == cudaAddressModeBorder && n[axis] > 1) {
                // A border has a color that a texel could have.
                if (how.parts == 0) return border[c];
                const float least = how.parts == 255 ? 0 : -1;
                return std::round(std::fmin(std::fmax(border[c], least), 1.0f) * how.parts) / how.parts;
            }
            i[axis] = reflect(i[axis], n[axis], how.mode);
        }
        const size_t at = (static_cast<size_t>(i[2]) * extents.height + i[1]) * extents.width + i[0];
        const float value = texels[at].at(c);
        return how.parts == 0 ? value : std::fmax(value / how.parts, -1.0f);
    }
};

// How far devices may be off: the parts in which neighbours are mixed have 8 bits.
const double LINEAR_ERROR = 1.0 / 200;

template <typename Texel>
double mixed(const Model<Texel> &model, const Reading &how, const double *u, int axes, int slice, int c,
             const float *border, double *spread) {
    int first[3] = {0, 0, slice};
    double part[3] = {0, 0, 0};
    for (int axis = 0; axis < axes; axis++) {
        const double at = how.linear ? u[axis] - 0.5 : u[axis];
        first[axis] = static_cast<int>(std::floor(at));
        part[axis] = how.linear ? at - first[axis] : 0;
    }
    double sum = 0, low = 1e30, high = -1e30;
    for (int tap = 0; tap < (how.linear ? 1 << axes : 1); tap++) {
        double weight = 1;
        int i[3] = {first[0], first[1], first[2]};
        for (int axis = 0; axis < axes; axis++) {
            const int bit = tap >> axis & 1;
            i[axis] += bit;
            weight *= bit ? part[axis] : 1 - part[axis];
        }
        const double value = model.texel(i[0], i[1], i[2], c, how, border);
        low = std::fmin(low, value), high = std::fmax(high, value);
        sum += weight * value;
    }
    *spread = high - low;
    return sum;
}

long compared = 0;

template <typename Read, typename Texel>
void compare(const char *name, Shape shape, Extents extents, int layers, cudaChannelFormatDesc format, Reading how,
             bool pitched) {
    const bool cube = shape == CUBE || shape == CUBES;
    const int axes = shape == ONE || shape == LAYERS_OF_ONE ? 1 : shape == THREE ? 3 : 2;
    const int slices = shape == THREE ? extents.depth : layers > 0 ? layers * (cube ? 6 : 1) : cube ? 6 : 1;
    Model<Texel> model{{extents.width, extents.height, slices}, layers, {}};
    model.texels.resize(static_cast<size_t>(extents.width) * extents.height * slices);
    for (size_t i = 0; i < model.texels.size(); i++) Texel::make(model.texels[i], hash(i));

    cudaResourceDesc resource{};
    cudaArray_t array = nullptr;
    void *memory = nullptr;
    if (pitched) {
        size_t pitch;
        CHECK(cudaMallocPitch(&memory, &pitch, extents.width * sizeof(Texel), extents.height));
        CHECK(cudaMemcpy2D(memory, pitch, model.texels.data(), extents.width * sizeof(Texel),
                           extents.width * sizeof(Texel), extents.height, cudaMemcpyHostToDevice));
        resource.resType = cudaResourceTypePitch2D;
        resource.res.pitch2D.devPtr = memory;
        resource.res.pitch2D.desc = format;
        resource.res.pitch2D.width = extents.width;
        resource.res.pitch2D.height = extents.height;
        resource.res.pitch2D.pitchInBytes = pitch;
    } else {
        const bool flat = shape == ONE || shape == LAYERS_OF_ONE;
        const unsigned flags = (layers > 0 ? cudaArrayLayered : 0) | (cube ? cudaArrayCubemap : 0);
        const cudaExtent extent =
            make_cudaExtent(extents.width, flat ? 0 : extents.height, shape == ONE || shape == TWO ? 0 : slices);
        CHECK(cudaMalloc3DArray(&array, &format, extent, flags));
        cudaMemcpy3DParms copy{};
        copy.srcPtr = make_cudaPitchedPtr(model.texels.data(), extents.width * sizeof(Texel), extents.width,
                                          extents.height);
        copy.dstArray = array;
        copy.extent = make_cudaExtent(extents.width, extents.height, slices);
        copy.kind = cudaMemcpyHostToDevice;
        CHECK(cudaMemcpy3D(&copy));
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = array;
    }
    const float border[4] = {0.25f, -3, 7.5f, 1};
    cudaTextureDesc texture{};
    // A device looks at the mode of an axis that a texture does not have: a border there mixes with every texel.
    for (int axis = 0; axis < 3; axis++)
        texture.addressMode[axis] = axis < axes ? how.mode : cudaAddressModeClamp;
    texture.filterMode = how.linear ? cudaFilterModeLinear : cudaFilterModePoint;
    texture.readMode = how.parts != 0 ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    texture.normalizedCoords = how.normalized;
    memcpy(texture.borderColor, border, sizeof border);
    cudaTextureObject_t object;
    CHECK(cudaCreateTextureObject(&object, &resource, &texture, nullptr));

    const int count = 4096;
    const int n[3] = {extents.width, extents.height, extents.depth};
    std::vector<Place> places(count);
    for (int i = 0; i < count; i++) {
        float u[3];
        for (int axis = 0; axis < 3; axis++) {
            // Thirty-seconds of a texel, never on the border of one: how devices round there is theirs.
            const unsigned h = hash(i * 3 + axis);
            const float texel = static_cast<float>(h % (3 * n[axis])) - n[axis] + (1 + 2 * (h >> 20) % 32) / 64.0f;
            u[axis] = how.normalized ? texel / n[axis] : texel;
            if (cube) u[axis] = static_cast<float>(h % 2001) / 1000 - 1;
        }
        places[i] = {u[0], u[1], u[2], static_cast<int>(hash(~i) % (layers > 0 ? layers : 1))};
    }
    Place *device_places;
    float4 *device_results;
    CHECK(cudaMalloc(&device_places, count * sizeof(Place)));
    CHECK(cudaMalloc(&device_results, count * sizeof(float4)));
    CHECK(cudaMemcpy(device_places, places.data(), count * sizeof(Place), cudaMemcpyHostToDevice));
    sample<Read><<<count / 128, 128>>>(object, shape, device_places, device_results, count);
    CHECK_KERNEL();
    std::vector<float4> results(count);
    CHECK(cudaMemcpy(results.data(), device_results, count * sizeof(float4), cudaMemcpyDeviceToHost));

    for (int i = 0; i < count; i++) {
        const Place &p = places[i];
        double u[3] = {p.x, p.y, p.z};
        int slice = p.layer;
        if (cube) {
            const double a[3] = {std::fabs(p.x), std::fabs(p.y), std::fabs(p.z)};
            const int major = a[0] >= a[1] && a[0] >= a[2] ? 0 : a[1] >= a[2] ? 1 : 2;
            const bool minus = u[major] < 0;
            const double s = major == 0 ? (minus ? p.z : -p.z) : major == 1 ? p.x : (minus ? -p.x : p.x);
            const double t = major == 1 ? (minus ? -p.z : p.z) : -p.y;
            u[0] = (s / a[major] + 1) / 2, u[1] = (t / a[major] + 1) / 2;
            slice = p.layer * 6 + 2 * major + minus;
            // Near edges of faces and borders of texels devices decide for themselves.
            bool near = false;
            for (int axis = 0; axis < 2; axis++) {
                const double texel = u[axis] * extents.width, off = std::fabs(texel - std::round(texel));
                near = near || off < 0.02 || texel < 0.6 || texel > extents.width - 0.6;
            }
            if (near || std::fabs(a[0] - a[1]) < 1e-6 || std::fabs(a[1] - a[2]) < 1e-6 ||
                std::fabs(a[0] - a[2]) < 1e-6)
                continue;
        }
        if (how.normalized)
            for (int axis = 0; axis < axes; axis++) u[axis] *= n[axis];
        const float got[4] = {results[i].x, results[i].y, results[i].z, results[i].w};
        for (int c = 0; c < Texel::channels; c++) {
            double spread;
            const double expected = mixed(model, how, u, axes, slice, c, border, &spread);
            const double error = how.linear ? axes * LINEAR_ERROR * spread + 1e-5 : 1e-6;
            if (std::fabs(got[c] - expected) > error * std::fmax(1, std::fabs(expected)))
                Program::fail("%s %s, mode %d, %s, %s: channel %d at (%g, %g, %g) of layer %d is %g, not %g", name,
                              SHAPES[shape], how.mode, how.linear ? "linear" : "point",
                              how.normalized ? "normalized" : "texels", c, p.x, p.y, p.z, p.layer, got[c], expected);
            compared++;
        }
    }
    CHECK(cudaDestroyTextureObject(object));
    if (array) CHECK(cudaFreeArray(array));
    if (memory) CHECK(cudaFree(memory));
    CHECK(cudaFree(device_places));
    CHECK(cudaFree(device_results));
}

__global__ void fetch(cudaTextureObject_t texture, int *results, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) results[i] = tex1Dfetch<int>(texture, i - 10);
}

// Plain memory, by whole numbers: outside there are zeros.
void whole() {
    const int count = 1000, more = count + 20;
    std::vector<int> values(count), results(more);
    for (int i = 0; i < count; i++) values[i] = static_cast<int>(hash(i));
    int *memory, *device_results;
    CHECK(cudaMalloc(&memory, count * sizeof(int)));
    CHECK(cudaMalloc(&device_results, more * sizeof(int)));
    CHECK(cudaMemcpy(memory, values.data(), count * sizeof(int), cudaMemcpyHostToDevice));
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory;
    resource.res.linear.desc = cudaCreateChannelDesc<int>();
    resource.res.linear.sizeInBytes = count * sizeof(int);
    cudaTextureDesc texture{};
    texture.readMode = cudaReadModeElementType;
    cudaTextureObject_t object;
    CHECK(cudaCreateTextureObject(&object, &resource, &texture, nullptr));
    fetch<<<(more + 127) / 128, 128>>>(object, device_results, more);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(results.data(), device_results, more * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < more; i++) {
        const int expected = i < 10 || i >= count + 10 ? 0 : values[i - 10];
        if (results[i] != expected) Program::fail("element %d is %d, not %d", i - 10, results[i], expected);
    }
    CHECK(cudaDestroyTextureObject(object));
    CHECK(cudaFree(memory));
    CHECK(cudaFree(device_results));
}

__global__ void turn(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float2 value;
    surf2Dread(&value, from, x * sizeof(float2), y);
    float2 outside = {1, 1};
    surf2Dread(&outside, from, (x + width) * sizeof(float2), y, cudaBoundaryModeZero);
    float2 last;
    surf2Dread(&last, from, (x + width) * sizeof(float2), y, cudaBoundaryModeClamp);
    float2 own;
    surf2Dread(&own, from, (width - 1) * sizeof(float2), y);
    value.x += outside.x + outside.y + (last.x == own.x && last.y == own.y ? 0 : 1e6f);
    surf2DLayeredwrite(value, to, y * sizeof(float2), x, 1);
    surf2DLayeredwrite(value, to, (y + height) * sizeof(float2), x, 0, cudaBoundaryModeZero);
}

// Surfaces: rows become columns of a layer, and what is written outside of it is not.
void surfaces() {
    const int width = 70, height = 33;
    std::vector<float2> image(width * height), turned(2 * width * height, float2{3, 4});
    for (size_t i = 0; i < image.size(); i++)
        image[i] = {static_cast<float>(hash(i) % 1000), static_cast<float>(i)};
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float2>();
    cudaArray_t from, to;
    CHECK(cudaMallocArray(&from, &format, width, height, cudaArraySurfaceLoadStore));
    CHECK(cudaMalloc3DArray(&to, &format, make_cudaExtent(height, width, 2),
                            cudaArrayLayered | cudaArraySurfaceLoadStore));
    CHECK(cudaMemcpy2DToArray(from, 0, 0, image.data(), width * sizeof(float2), width * sizeof(float2), height,
                              cudaMemcpyHostToDevice));
    cudaMemcpy3DParms copy{};
    copy.srcPtr = make_cudaPitchedPtr(turned.data(), height * sizeof(float2), height, width);
    copy.dstArray = to;
    copy.extent = make_cudaExtent(height, width, 2);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    cudaSurfaceObject_t objects[2];
    for (int i = 0; i < 2; i++) {
        cudaResourceDesc resource{};
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = i == 0 ? from : to;
        CHECK(cudaCreateSurfaceObject(&objects[i], &resource));
    }
    turn<<<dim3((width + 15) / 16, (height + 7) / 8), dim3(16, 8)>>>(objects[0], objects[1], width, height);
    CHECK_KERNEL();
    copy = {};
    copy.srcArray = to;
    copy.dstPtr = make_cudaPitchedPtr(turned.data(), height * sizeof(float2), height, width);
    copy.extent = make_cudaExtent(height, width, 2);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    for (int layer = 0; layer < 2; layer++)
        for (int y = 0; y < width; y++)
            for (int x = 0; x < height; x++) {
                const float2 got = turned[(layer * width + y) * height + x];
                const float2 expected = layer == 0 ? float2{3, 4} : image[x * width + y];
                if (got.x != expected.x || got.y != expected.y)
                    Program::fail("(%d, %d) of layer %d is (%g, %g), not (%g, %g)", x, y, layer, got.x, got.y,
                                  expected.x, expected.y);
            }
    for (const cudaSurfaceObject_t object : objects) CHECK(cudaDestroySurfaceObject(object));
    CHECK(cudaFreeArray(from));
    CHECK(cudaFreeArray(to));
}

// What a call has copied into an array when it returns is there for kernels of streams without an order to it.
void copied_before_others() {
    const int width = 512, height = 512;
    std::vector<float> values(width * height);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaArray_t array;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocArray(&array, &format, width, height));
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc described{};
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &described, nullptr));
    const Place last{width - 0.5f, height - 0.5f, 0, 0};
    Place *places;
    float4 *result;
    CHECK(cudaMalloc(&places, sizeof(Place)));
    CHECK(cudaMallocHost(&result, sizeof(float4)));
    CHECK(cudaMemcpy(places, &last, sizeof(Place), cudaMemcpyHostToDevice));
    for (int turn = 1; turn <= 20; turn++) {
        values.assign(values.size(), static_cast<float>(turn));
        CHECK(cudaMemcpy2DToArray(array, 0, 0, values.data(), width * sizeof(float), width * sizeof(float), height,
                                  cudaMemcpyHostToDevice));
        sample<float><<<1, 1, 0, stream>>>(texture, TWO, places, result, 1);
        CHECK(cudaStreamSynchronize(stream));
        if (result->x != static_cast<float>(turn)) Program::fail("turn %d: a kernel read %f", turn, result->x);
    }
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(places));
    CHECK(cudaFreeHost(result));
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv) {
    const Program program("textures", argc, argv);
    const cudaTextureAddressMode modes[] = {cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror,
                                            cudaAddressModeBorder};
    const cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>(), quads = cudaCreateChannelDesc<float4>(),
                                bytes = cudaCreateChannelDesc<uchar4>(), shorts = cudaCreateChannelDesc<short2>(),
                                halves = cudaCreateChannelDescHalf2();
    for (const cudaTextureAddressMode mode : modes)
        for (int linear = 0; linear < 2; linear++)
            for (int normalized = 0; normalized < 2; normalized++) {
                // Coordinates in texels do not go around, and are not mirrored.
                if (!normalized && (mode == cudaAddressModeWrap || mode == cudaAddressModeMirror)) continue;
                const Reading how{mode, linear != 0, normalized != 0, 0};
                compare<float, Float1>("float", ONE, {64, 1, 1}, 0, floats, how, false);
                compare<float, Float1>("float", TWO, {64, 32, 1}, 0, floats, how, false);
                compare<float, Float1>("float", TWO, {64, 32, 1}, 0, floats, how, true);
                compare<float, Float1>("float", THREE, {32, 16, 8}, 0, floats, how, false);
                compare<float4, Float4>("float4", TWO, {128, 16, 1}, 0, quads, how, false);
                compare<float, Float1>("float", LAYERS_OF_ONE, {64, 1, 1}, 5, floats, how, false);
                compare<float4, Float4>("float4", LAYERS_OF_TWO, {32, 64, 1}, 3, quads, how, false);
                compare<float2, Halves2>("half2", TWO, {64, 16, 1}, 0, halves, how, false);
                Reading parts = how;
                parts.parts = 255;
                compare<float4, Bytes4>("uchar4 in parts", TWO, {16, 64, 1}, 0, bytes, parts, true);
                parts.parts = 32767;
                compare<float2, Shorts2>("short2 in parts", THREE, {16, 8, 32}, 0, shorts, parts, false);
                if (!linear && mode == cudaAddressModeClamp) {
                    compare<uchar4, Bytes4>("uchar4", TWO, {64, 64, 1}, 0, bytes, how, false);
                    compare<short2, Shorts2>("short2", TWO, {64, 64, 1}, 0, shorts, how, false);
                }
                if (normalized && mode == cudaAddressModeClamp) {
                    compare<float, Float1>("float", CUBE, {64, 64, 1}, 0, floats, how, false);
                    compare<float, Float1>("float", CUBES, {32, 32, 1}, 3, floats, how, false);
                }
            }
    whole();
    surfaces();
    copied_before_others();
    return Program::pass("%ld values compared", compared);
}
