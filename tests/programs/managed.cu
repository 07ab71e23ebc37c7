// Managed memory: host and kernels use it at one address, with prefetches and advice that change nothing but what is told
// of them.
#include "program.h"

#include <vector>

__global__ void scale(unsigned *data, unsigned n, unsigned factor) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = data[i] * factor + 1;
}

// A list whose links the host made.
struct Node {
    Node *next;
    unsigned value;
};

__global__ void walk(const Node *first, unsigned *sum) {
    *sum = 0;
    for (; first; first = first->next) *sum += first->value;
}

static void is_refused(cudaError_t error, cudaError_t expected, const char *what) {
    if (error != expected) Program::fail("%s: %s", what, cudaGetErrorName(error));
    cudaGetLastError();
}

static int attribute(cudaDeviceAttr attribute) {
    int value = -1;
    CHECK(cudaDeviceGetAttribute(&value, attribute, 0));
    return value;
}

static int told(cudaMemRangeAttribute attribute, const void *data, size_t bytes) {
    int value = -77;
    CHECK(cudaMemRangeGetAttribute(&value, sizeof value, attribute, data, bytes));
    return value;
}

int main(int argc, char **argv) {
    const Program program("managed", argc, argv);
    if (!attribute(cudaDevAttrManagedMemory)) Program::fail("the device says that it has none");
    if (attribute(cudaDevAttrPageableMemoryAccess)) Program::fail("kernels reach all of the program's memory");
    const int concurrent = attribute(cudaDevAttrConcurrentManagedAccess);
    const unsigned n = program.large ? 16u << 20 : 300007u;
    const size_t bytes = n * sizeof(unsigned);

    for (unsigned flags : {cudaMemAttachGlobal, cudaMemAttachHost}) {
        unsigned *data = nullptr;
        cudaStream_t stream;
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaMallocManaged(&data, bytes, flags));
        for (unsigned i = 0; i < n; i++) data[i] = i;
        CHECK(cudaStreamAttachMemAsync(stream, data, 0, cudaMemAttachSingle));
        scale<<<(n + 255) / 256, 256, 0, stream>>>(data, n, 3);
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < n; i++) {
            if (data[i] != i * 3 + 1) Program::fail("[%u] is %u after a kernel", i, data[i]);
            data[i] = i;
        }
        cudaPointerAttributes attributes;
        CHECK(cudaPointerGetAttributes(&attributes, data + 5));
        if (attributes.type != cudaMemoryTypeManaged) Program::fail("memory of type %d", attributes.type);
        if (attributes.hostPointer != data + 5 || attributes.devicePointer != data + 5) {
            Program::fail("at %p it is %p for the host, %p for kernels", static_cast<void *>(data + 5), attributes.hostPointer,
                          attributes.devicePointer);
        }
        // Copies and fills.
        unsigned *device;
        std::vector<unsigned> host(n);
        CHECK(cudaMalloc(&device, bytes));
        CHECK(cudaMemcpy(device, data, bytes, cudaMemcpyDefault));
        scale<<<(n + 255) / 256, 256>>>(device, n, 5);
        CHECK(cudaMemcpy(data, device, bytes, cudaMemcpyDeviceToDevice));
        CHECK(cudaMemcpy(host.data(), data, bytes, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < n; i++) {
            if (host[i] != i * 5 + 1) Program::fail("[%u] is %u after copies", i, host[i]);
            host[i] = i * 9;
        }
        CHECK(cudaMemcpyAsync(data, host.data(), bytes, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemsetAsync(data, 0x11, 8, stream));
        CHECK(cudaStreamSynchronize(stream));
        if (data[0] != 0x11111111 || data[1] != 0x11111111 || data[2] != 18) Program::fail("%u %u %u", data[0], data[1], data[2]);
        CHECK(cudaFree(device));
        CHECK(cudaFree(data));
        CHECK(cudaStreamDestroy(stream));
        is_refused(cudaFree(data), cudaErrorInvalidValue, "freed twice");
    }

    // Pointers in it are good for both.
    std::vector<Node *> nodes(100);
    for (unsigned i = 0; i < nodes.size(); i++) {
        CHECK(cudaMallocManaged(&nodes[i], sizeof(Node)));
        *nodes[i] = {i ? nodes[i - 1] : nullptr, i};
    }
    unsigned *sum;
    CHECK(cudaMallocManaged(&sum, sizeof *sum));
    walk<<<1, 1>>>(nodes.back(), sum);
    CHECK(cudaDeviceSynchronize());
    if (*sum != 4950) Program::fail("the list's sum is %u", *sum);
    for (Node *node : nodes) CHECK(cudaFree(node));
    CHECK(cudaFree(sum));

    // What the program says of where it uses it.
    char *data;
    const size_t half = 64 << 10;
    CHECK(cudaMallocManaged(&data, 2 * half));
    const cudaMemLocation device = {cudaMemLocationTypeDevice, 0}, host = {cudaMemLocationTypeHost, 0};
    if (told(cudaMemRangeAttributeReadMostly, data, 2 * half) != 0) Program::fail("read mostly");
    if (told(cudaMemRangeAttributePreferredLocation, data, 2 * half) != cudaInvalidDeviceId) Program::fail("preferred");
    if (told(cudaMemRangeAttributeLastPrefetchLocation, data, 2 * half) != cudaInvalidDeviceId) Program::fail("prefetched");
    CHECK(cudaMemAdvise(data, 2 * half, cudaMemAdviseSetReadMostly, device));
    CHECK(cudaMemAdvise(data, half, cudaMemAdviseSetPreferredLocation, device));
    CHECK(cudaMemAdvise(data + half, half, cudaMemAdviseSetPreferredLocation, host));
    CHECK(cudaMemAdvise(data, 2 * half, cudaMemAdviseSetAccessedBy, device));
    if (told(cudaMemRangeAttributeReadMostly, data, 2 * half) != 1) Program::fail("not read mostly");
    if (told(cudaMemRangeAttributePreferredLocation, data, half) != 0) Program::fail("not preferred");
    if (told(cudaMemRangeAttributePreferredLocation, data + half, half) != cudaCpuDeviceId) Program::fail("not the host");
    if (told(cudaMemRangeAttributePreferredLocation, data, 2 * half) != cudaInvalidDeviceId) Program::fail("both");
    int accessed[2] = {-77, -77}, read_mostly = -77;
    CHECK(cudaMemRangeGetAttribute(accessed, sizeof accessed, cudaMemRangeAttributeAccessedBy, data, half));
    if (accessed[0] != 0 || accessed[1] != cudaInvalidDeviceId) Program::fail("accessed by %d, %d", accessed[0], accessed[1]);
    CHECK(cudaMemAdvise(data, half, cudaMemAdviseUnsetReadMostly, device));
    CHECK(cudaMemAdvise(data, half, cudaMemAdviseUnsetPreferredLocation, device));
    CHECK(cudaMemAdvise(data, half, cudaMemAdviseUnsetAccessedBy, device));
    void *values[] = {&read_mostly, accessed};
    size_t sizes[] = {sizeof read_mostly, sizeof accessed};
    cudaMemRangeAttribute asked[] = {cudaMemRangeAttributeReadMostly, cudaMemRangeAttributeAccessedBy};
    CHECK(cudaMemRangeGetAttributes(values, sizes, asked, 2, data, half));
    if (read_mostly != 0 || accessed[0] != cudaInvalidDeviceId) Program::fail("%d, %d when taken back", read_mostly, accessed[0]);
    if (concurrent) {
        CHECK(cudaMemPrefetchAsync(data, 2 * half, device, 0, 0));
        if (told(cudaMemRangeAttributeLastPrefetchLocation, data, 2 * half) != 0) Program::fail("not prefetched");
        CHECK(cudaMemPrefetchAsync(data, half, host, 0, 0));
        if (told(cudaMemRangeAttributeLastPrefetchLocation, data, half) != cudaCpuDeviceId) Program::fail("not back");
    }
    CHECK(cudaDeviceSynchronize());

    // What is none.
    unsigned own = 0, *plain;
    const cudaMemLocation nowhere = {cudaMemLocationTypeDevice, 7};
    CHECK(cudaMalloc(&plain, 64));
    is_refused(cudaMemAdvise(plain, 64, cudaMemAdviseSetReadMostly, device), cudaErrorInvalidValue, "advice for the device's");
    is_refused(cudaMemPrefetchAsync(&own, 4, device, 0, 0), cudaErrorInvalidValue, "a prefetch of the program's");
    is_refused(cudaMemPrefetchAsync(data, 3 * half, device, 0, 0), cudaErrorInvalidValue, "a prefetch of more");
    is_refused(cudaMemPrefetchAsync(data, half, nowhere, 0, 0), cudaErrorInvalidDevice, "a prefetch to nowhere");
    is_refused(cudaStreamAttachMemAsync(0, data, 5, cudaMemAttachSingle), cudaErrorInvalidValue, "a part attached");
    is_refused(cudaMallocManaged(&plain, 64, 8), cudaErrorInvalidValue, "flags");
    CHECK(cudaFree(data));
    CHECK(cudaFree(plain));
    return Program::pass("n=%u concurrent=%d", n, concurrent);
}
