// CUDA's virtual memory management: addresses that grow piece by piece, memory that moves between addresses, and memory
// that two processes share by file descriptors, passed over a Unix socket. The second is forked before CUDA is touched.
#include "program.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

// A word of each 64 bytes is written: with all of them this takes minutes where accesses are looked at one by one.
static const size_t STEP = 16;

__global__ void fill(unsigned *words, size_t n, unsigned seed) {
    const size_t i = STEP * (blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x);
    if (i < n) words[i] = hash(static_cast<unsigned>(i) * 2654435761u + seed);
}

__global__ void verify(const unsigned *words, size_t n, unsigned seed, unsigned *wrong) {
    const size_t i = STEP * (blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x);
    if (i < n && words[i] != hash(static_cast<unsigned>(i) * 2654435761u + seed)) atomicAdd(wrong, 1u);
}

static unsigned blocks(size_t n) { return static_cast<unsigned>((n + 256 * STEP - 1) / (256 * STEP)); }

// The driver's calls, which the runtime finds.
struct Driver {
    PFN_cuMemGetAllocationGranularity_v10020 granularity;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemRetainAllocationHandle_v11000 retain;
    PFN_cuMemGetAllocationPropertiesFromHandle_v10020 properties;
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemAddressFree_v10020 unreserve;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 set_access;
    PFN_cuMemGetAccess_v10020 get_access;
    PFN_cuMemExportToShareableHandle_v10020 export_handle;
    PFN_cuMemImportFromShareableHandle_v10020 import_handle;

    template <typename Call> static void find(const char *name, unsigned version, Call &call) {
        void *found = nullptr;
        cudaDriverEntryPointQueryResult result;
        CHECK(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result));
        if (found == nullptr || result != cudaDriverEntryPointSuccess) Program::fail("there is no %s", name);
        call = reinterpret_cast<Call>(found);
    }

    Driver() {
        find("cuMemGetAllocationGranularity", 10020, granularity);
        find("cuMemCreate", 10020, create);
        find("cuMemRelease", 10020, release);
        find("cuMemRetainAllocationHandle", 11000, retain);
        find("cuMemGetAllocationPropertiesFromHandle", 10020, properties);
        find("cuMemAddressReserve", 10020, reserve);
        find("cuMemAddressFree", 10020, unreserve);
        find("cuMemMap", 10020, map);
        find("cuMemUnmap", 10020, unmap);
        find("cuMemSetAccess", 10020, set_access);
        find("cuMemGetAccess", 10020, get_access);
        find("cuMemExportToShareableHandle", 10020, export_handle);
        find("cuMemImportFromShareableHandle", 10020, import_handle);
    }
};

#define DRIVER(call)                                                                                      \
    do {                                                                                                  \
        const CUresult status = (call);                                                                   \
        if (status != CUDA_SUCCESS) Program::fail("%s:%d: %s: %d", __FILE__, __LINE__, #call, status);    \
    } while (0)

static CUmemAllocationProp shareable() {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
}

// What a process has of the calls, and the sizes it uses.
struct Machine {
    Driver driver;
    size_t page = 0;

    Machine() {
        CHECK(cudaSetDevice(0));
        CHECK(cudaFree(nullptr));
        const CUmemAllocationProp properties = shareable();
        DRIVER(driver.granularity(&page, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        if (page == 0 || page % (2 << 20) != 0) Program::fail("a granularity of %zu", page);
    }

    CUdeviceptr reserve(size_t bytes) const {
        CUdeviceptr start = 0;
        DRIVER(driver.reserve(&start, bytes, 0, 0, 0));
        return start;
    }

    CUmemGenericAllocationHandle create(size_t bytes) const {
        CUmemGenericAllocationHandle handle = 0;
        const CUmemAllocationProp properties = shareable();
        DRIVER(driver.create(&handle, bytes, &properties, 0));
        return handle;
    }

    void open(CUdeviceptr start, size_t bytes) const {
        CUmemAccessDesc access = {};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        DRIVER(driver.set_access(start, bytes, &access, 1));
    }

    void map(CUdeviceptr start, size_t bytes, CUmemGenericAllocationHandle handle) const {
        DRIVER(driver.map(start, bytes, 0, handle, 0));
        open(start, bytes);
    }

    void fill_all(CUdeviceptr start, size_t bytes, unsigned seed) const {
        fill<<<blocks(bytes / 4), 256>>>(reinterpret_cast<unsigned *>(start), bytes / 4, seed);
        CHECK_KERNEL();
    }

    void verify_all(CUdeviceptr start, size_t bytes, unsigned seed, const char *who) const {
        unsigned *wrong, found = 0;
        CHECK(cudaMalloc(&wrong, sizeof *wrong));
        CHECK(cudaMemset(wrong, 0, sizeof *wrong));
        verify<<<blocks(bytes / 4), 256>>>(reinterpret_cast<unsigned *>(start), bytes / 4, seed, wrong);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost));
        CHECK(cudaFree(wrong));
        if (found != 0) Program::fail("%s: %u of %zu words are wrong", who, found, bytes / 4);
    }
};

// Addresses that grow: as the expandable segments of PyTorch, and the growing vector of CUDA's samples.
static void grow(const Machine &machine) {
    const Driver &driver = machine.driver;
    const size_t piece = 3 * machine.page, count = 5, whole = 1000 * machine.page;
    const CUdeviceptr start = machine.reserve(whole);
    for (size_t k = 0; k < count; k++) {
        const CUmemGenericAllocationHandle handle = machine.create(piece);
        machine.map(start + k * piece, piece, handle);
        // The mapping keeps the memory.
        DRIVER(driver.release(handle));
        machine.fill_all(start, (k + 1) * piece, static_cast<unsigned>(k));
        machine.verify_all(start, (k + 1) * piece, static_cast<unsigned>(k), "what grew");
    }
    // Copies and fills across the borders.
    std::vector<unsigned char> host(2 * piece);
    for (size_t i = 0; i < host.size(); i++) host[i] = static_cast<unsigned char>(i * 7 + i / 4096);
    void *across = reinterpret_cast<void *>(start + piece / 2);
    CHECK(cudaMemcpy(across, host.data(), host.size(), cudaMemcpyHostToDevice));
    std::vector<unsigned char> back(host.size());
    CHECK(cudaMemcpy(back.data(), across, back.size(), cudaMemcpyDeviceToHost));
    if (back != host) Program::fail("a copy across pieces arrived otherwise");
    CHECK(cudaMemset(across, 0x3C, host.size()));
    CHECK(cudaMemcpy(back.data(), across, back.size(), cudaMemcpyDeviceToHost));
    for (const unsigned char byte : back) {
        if (byte != 0x3C) Program::fail("a fill across pieces left %#x", byte);
    }
    // One piece goes, the others stay; a new one comes in its place.
    machine.fill_all(start + piece, piece, 71);
    machine.fill_all(start + 3 * piece, piece, 73);
    DRIVER(driver.unmap(start + 2 * piece, piece));
    machine.verify_all(start + piece, piece, 71, "the piece before");
    machine.verify_all(start + 3 * piece, piece, 73, "the piece behind");
    const CUmemGenericAllocationHandle next = machine.create(piece);
    machine.map(start + 2 * piece, piece, next);
    DRIVER(driver.release(next));
    machine.fill_all(start, count * piece, 5);
    machine.verify_all(start, count * piece, 5, "the pieces");
    DRIVER(driver.unmap(start, count * piece));
    DRIVER(driver.unreserve(start, whole));
}

// Memory that is mapped at one address, then at another, then at two.
static void move(const Machine &machine) {
    const Driver &driver = machine.driver;
    const size_t bytes = 2 * machine.page;
    const CUdeviceptr start = machine.reserve(4 * bytes);
    const CUmemGenericAllocationHandle one = machine.create(bytes), two = machine.create(bytes);
    machine.map(start, bytes, one);
    machine.fill_all(start, bytes, 1);
    DRIVER(driver.unmap(start, bytes));
    machine.map(start, bytes, two);
    machine.fill_all(start, bytes, 2);
    machine.map(start + bytes, bytes, one);
    machine.verify_all(start + bytes, bytes, 1, "memory at its second address");
    machine.verify_all(start, bytes, 2, "memory at the first one's address");
    machine.map(start + 2 * bytes, bytes, two);
    machine.fill_all(start + 2 * bytes, bytes, 3);
    machine.verify_all(start, bytes, 3, "memory at two addresses");

    CUmemGenericAllocationHandle again = 0;
    DRIVER(driver.retain(&again, reinterpret_cast<void *>(start + bytes + 4)));
    DRIVER(driver.release(again));
    CUmemAllocationProp found = {};
    DRIVER(driver.properties(&found, one));
    if (found.type != CU_MEM_ALLOCATION_TYPE_PINNED || found.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        Program::fail("memory is of type %d at %d", found.type, found.location.type);
    }
    unsigned long long flags = 0;
    CUmemLocation location = {};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    DRIVER(driver.get_access(&flags, &location, start));
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) Program::fail("an access of %llu", flags);

    // What makes no sense is an error, and changes nothing.
    const auto refused = [](CUresult status, const char *what) {
        if (status == CUDA_SUCCESS) Program::fail("%s is no error", what);
    };
    refused(driver.map(start, bytes, 0, one, 0), "mapping where something is mapped");
    refused(driver.unreserve(start, 4 * bytes), "freeing addresses where something is mapped");
    CUmemGenericAllocationHandle none = 0;
    const CUmemAllocationProp properties = shareable();
    refused(driver.create(&none, machine.page - 1, &properties, 0), "less than a page");
    refused(driver.create(&none, size_t(1) << 50, &properties, 0), "more memory than there is");
    const int file = open("/dev/null", O_RDWR);
    void *handle = reinterpret_cast<void *>(static_cast<uintptr_t>(file));
    refused(driver.import_handle(&none, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), "a foreign descriptor");
    close(file);
    refused(driver.import_handle(&none, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), "a closed descriptor");
    machine.verify_all(start, bytes, 3, "what was left alone");

    DRIVER(driver.unmap(start, 3 * bytes));
    DRIVER(driver.release(one));
    DRIVER(driver.release(two));
    DRIVER(driver.unreserve(start, 4 * bytes));
}

// One end of a socket between the processes.
struct Peer {
    int socket;

    void send(int descriptor) const {
        char byte = 'd', room[CMSG_SPACE(sizeof descriptor)] = {};
        iovec data = {&byte, 1};
        msghdr message = {};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof descriptor);
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
        if (sendmsg(socket, &message, 0) != 1) Program::fail("the other process is gone");
    }

    int receive() const {
        int descriptor = -1;
        char byte, room[CMSG_SPACE(sizeof descriptor)];
        iovec data = {&byte, 1};
        msghdr message = {};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        if (recvmsg(socket, &message, 0) != 1) Program::fail("the other process is gone");
        const cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header == nullptr || header->cmsg_type != SCM_RIGHTS) Program::fail("no descriptor came");
        std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
        return descriptor;
    }

    // Both have come this far.
    void meet() const {
        char token = 'm';
        if (write(socket, &token, 1) != 1 || read(socket, &token, 1) != 1) Program::fail("the other process is gone");
    }
};

// What is shared, in pages.
static const size_t PAGES[] = {1, 3, 33};
static const int COUNT = sizeof PAGES / sizeof *PAGES;

static size_t pages() {
    size_t sum = 0;
    for (const size_t count : PAGES) sum += count;
    return sum;
}

// Uses what its exporter has let go of: whatever comes of it, it reaches nobody's memory.
static void use_what_is_gone(const Machine &machine, CUdeviceptr start, size_t bytes) {
    fill<<<blocks(bytes / 4), 256>>>(reinterpret_cast<unsigned *>(start), bytes / 4, 0xBADBADu);
    const cudaError_t launched = cudaDeviceSynchronize();
    if (launched != cudaSuccess) Program::fail("a kernel that went astray was not contained: %d", launched);
    unsigned word = 0;
    if (cudaMemcpy(&word, reinterpret_cast<void *>(start), sizeof word, cudaMemcpyDeviceToHost) == cudaSuccess) {
        Program::fail("memory that is gone can still be read: %#x", word);
    }
    cudaGetLastError();
}

static int import(const Peer &peer, bool contained) {
    const Machine machine;
    const Driver &driver = machine.driver;
    const size_t whole = pages() * machine.page;
    const CUdeviceptr start = machine.reserve(whole);
    size_t at = whole;
    // The other way round than in the exporter.
    for (const size_t count : PAGES) {
        const size_t bytes = count * machine.page;
        const int descriptor = peer.receive();
        CUmemGenericAllocationHandle handle = 0;
        void *shared = reinterpret_cast<void *>(static_cast<uintptr_t>(descriptor));
        DRIVER(driver.import_handle(&handle, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        close(descriptor);
        at -= bytes;
        machine.map(start + at, bytes, handle);
        DRIVER(driver.release(handle));
        machine.verify_all(start + at, bytes, 100 + static_cast<unsigned>(count), "the importer reads");
        machine.fill_all(start + at, bytes, 200 + static_cast<unsigned>(count));
    }
    if (at != 0) Program::fail("%zu bytes are left", at);
    peer.meet();
    peer.meet();
    at = whole;
    for (const size_t count : PAGES) {
        at -= count * machine.page;
        machine.verify_all(start + at, count * machine.page, 300 + static_cast<unsigned>(count), "the importer reads again");
    }
    peer.meet();
    if (contained) {
        peer.meet();
        for (int round = 0; round < 3; round++) use_what_is_gone(machine, start, whole);
        peer.meet();
    }
    DRIVER(driver.unmap(start, whole));
    DRIVER(driver.unreserve(start, whole));
    grow(machine);
    peer.meet();
    return 0;
}

static void give(const Peer &peer, bool contained) {
    const Machine machine;
    const Driver &driver = machine.driver;
    grow(machine);
    move(machine);
    const size_t whole = pages() * machine.page;
    const CUdeviceptr start = machine.reserve(whole);
    CUmemGenericAllocationHandle handles[COUNT];
    size_t at = 0;
    for (int k = 0; k < COUNT; k++) {
        const size_t bytes = PAGES[k] * machine.page;
        handles[k] = machine.create(bytes);
        machine.map(start + at, bytes, handles[k]);
        machine.fill_all(start + at, bytes, 100 + static_cast<unsigned>(PAGES[k]));
        int descriptor = -1;
        DRIVER(driver.export_handle(&descriptor, handles[k], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        peer.send(descriptor);
        close(descriptor);
        at += bytes;
    }
    peer.meet();
    at = 0;
    for (const size_t count : PAGES) {
        machine.verify_all(start + at, count * machine.page, 200 + static_cast<unsigned>(count), "the exporter reads");
        machine.fill_all(start + at, count * machine.page, 300 + static_cast<unsigned>(count));
        at += count * machine.page;
    }
    peer.meet();
    peer.meet();
    if (contained) {
        DRIVER(driver.unmap(start, whole));
        for (const CUmemGenericAllocationHandle handle : handles) DRIVER(driver.release(handle));
        // What comes in its place is nobody else's: the importer writes on meanwhile.
        const CUmemGenericAllocationHandle next = machine.create(whole);
        machine.map(start, whole, next);
        machine.fill_all(start, whole, 400);
        peer.meet();
        machine.verify_all(start, whole, 400, "the next owner reads");
        peer.meet();
        machine.verify_all(start, whole, 400, "the next owner reads again");
        DRIVER(driver.release(next));
    }
    peer.meet();
    DRIVER(driver.unmap(start, whole));
    if (!contained) {
        for (const CUmemGenericAllocationHandle handle : handles) DRIVER(driver.release(handle));
    }
    DRIVER(driver.unreserve(start, whole));
}

int main(int argc, char **argv) {
    const Program program("virtual_memory", argc, argv);
    // On NVIDIA's own driver imported memory outlives its exporter's handles.
    const bool contained = std::getenv("BULKHEAD_SOCKET") != nullptr;
    int ends[2];
    std::signal(SIGPIPE, SIG_IGN);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) Program::fail("no sockets");
    const pid_t child = fork();
    if (child < 0) Program::fail("no second process");
    if (child == 0) {
        close(ends[0]);
        return import(Peer{ends[1]}, contained);
    }
    close(ends[1]);
    give(Peer{ends[0]}, contained);
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        Program::fail("the importer ended with %#x", status);
    }
    return Program::pass("handles=%d", COUNT);
}
