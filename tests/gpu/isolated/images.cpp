// Question 8: fat binaries of shared libraries, mapped read-only from their files in a process that does not load the
// libraries.
//
//     images FILE...     the first file is the library of sample.cu: its kernel is run
//
// The parent opens the files; the child gets the descriptors alone, as an executor would.

#include "common.h"

#include <elf.h>
#include <sys/stat.h>
#include <map>

struct Wrapper { // as the registration code of nvcc has it
    uint32_t magic = 0x466243B1, version = 1;
    const void *data = nullptr;
    void *more = nullptr;
};

struct Mapped {
    const char *bytes;
    size_t size;
};

// The ranges of the file that hold fat binaries: section `.nv_fatbin`, cut at its containers.
static std::vector<const char *> containers(const Mapped &file) {
    std::vector<const char *> found;
    const auto *header = (const Elf64_Ehdr *)file.bytes;
    const auto *sections = (const Elf64_Shdr *)(file.bytes + header->e_shoff);
    const char *names = file.bytes + sections[header->e_shstrndx].sh_offset;
    for (int section = 0; section < header->e_shnum; section++) {
        if (strcmp(names + sections[section].sh_name, ".nv_fatbin") != 0) continue;
        const char *at = file.bytes + sections[section].sh_offset, *end = at + sections[section].sh_size;
        while (at + 16 <= end) {
            uint32_t magic;
            uint16_t header_size;
            uint64_t size;
            memcpy(&magic, at, 4);
            memcpy(&header_size, at + 6, 2);
            memcpy(&size, at + 8, 8);
            if (magic != 0xBA55ED50) {
                at += 8;
                continue;
            }
            found.push_back(at);
            at += header_size + size;
            at += (8 - (at - file.bytes) % 8) % 8;
        }
    }
    return found;
}

// KiB of the mapping that are in this process's memory.
static size_t resident_kib(const void *mapping) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    size_t kib = 0;
    bool inside = false;
    while (file && fgets(line, sizeof line, file)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            inside = begin == (unsigned long)mapping;
        else if (inside && sscanf(line, "Rss: %zu kB", &kib) == 1)
            break;
    }
    if (file) fclose(file);
    return kib;
}

static size_t anonymous_kib() {
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    size_t kib = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %zu kB", &kib) == 1) break;
    if (file) fclose(file);
    return kib;
}

static CUresult load(CUlibrary *library, const void *code, bool preserved) {
    CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
    void *yes = (void *)(uintptr_t)1;
    return cuLibraryLoadData(library, code, nullptr, nullptr, 0, preserved ? &option : nullptr,
                             preserved ? &yes : nullptr, preserved ? 1 : 0);
}

static Mapped map_file(int descriptor) {
    struct stat status;
    if (fstat(descriptor, &status) != 0) die("fstat");
    void *bytes = mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (bytes == MAP_FAILED) die("mmap");
    close(descriptor);
    return {(const char *)bytes, size_t(status.st_size)};
}

// Gets a kernel of each library, which loads it; at most for so long.
static void first_kernels(const char *of, const std::vector<CUlibrary> &libraries, double limit_us) {
    std::vector<double> us;
    unsigned kernels = 0, counted = 0;
    const size_t before = free_bytes();
    const double begun = now_us();
    for (const CUlibrary library : libraries) {
        if (now_us() - begun > limit_us) break;
        unsigned count = 0;
        if (cuLibraryGetKernelCount(&count, library) != CUDA_SUCCESS) continue;
        kernels += count, counted++;
        if (!count) continue;
        std::vector<CUkernel> list(count);
        CUfunction function;
        if (cuLibraryEnumerateKernels(list.data(), count, library) != CUDA_SUCCESS) continue;
        us.push_back(took_us([&] { (void)cuKernelGetFunction(&function, list[0]); }));
    }
    if (us.empty()) return;
    row(8, text("%s: first kernel of each image", of), text("%.0f us (p99 %.0f)", median(us), at(us, 0.99)),
        text("%u kernels in %u images; device memory %.1f MiB", kernels, counted,
             (double(before) - double(free_bytes())) / MIB));
}

static void whole(const char *of, const Mapped &file) {
    const std::vector<const char *> images = containers(file);
    size_t bytes = 0;
    for (const char *image : images) {
        uint64_t size;
        memcpy(&size, image + 8, 8);
        bytes += size;
    }
    const size_t before_kib = resident_kib(file.bytes), before_free = free_bytes();
    std::vector<CUlibrary> libraries;
    std::vector<double> us;
    for (const bool preserved : {true, false}) {
        us.clear();
        const size_t anonymous = anonymous_kib();
        std::map<std::string, int> refused;
        std::vector<Wrapper> wrappers(images.size());
        const double begun = now_us();
        for (size_t image = 0; image < images.size() && now_us() - begun < 8e6; image++) {
            CUlibrary library;
            CUresult result;
            wrappers[image].data = images[image];
            us.push_back(took_us([&] { result = load(&library, &wrappers[image], preserved); }));
            if (result == CUDA_SUCCESS)
                libraries.push_back(library);
            else
                refused[name(result)]++;
        }
        const double ms = (now_us() - begun) / 1e3;
        std::string list;
        for (const auto &one : refused) list += text("; %s %d", one.first.c_str(), one.second);
        row(8, text("%s: all images lazily, %s", of, preserved ? "kept by us" : "driver copies"),
            text("%zu of %zu in %.1f ms", libraries.size(), images.size(), ms),
            text("%.0f MiB of %.0f read, own memory %+.1f, device %+.1f MiB; p50 %.1f us%s",
                 (resident_kib(file.bytes) - before_kib) / 1024.0, bytes / double(MIB),
                 (double(anonymous_kib()) - double(anonymous)) / 1024,
                 (double(before_free) - double(free_bytes())) / MIB, median(us), list.c_str()));
        // The driver may look at the wrappers again: they are kept while the libraries are.
        if (preserved) first_kernels(of, libraries, 4e6);
        for (const CUlibrary library : libraries) (void)cuLibraryUnload(library);
        libraries.clear();
    }
}

static bool runs(CUfunction tell, const volatile Word *word, Word value) {
    launch(tell, nullptr, 1, 1, address(word), value);
    MUST(cuCtxSynchronize());
    return *word == value;
}

static void sample(const Mapped &file) {
    // CUDA's own part of the library may have a fat binary too.
    const char *image = nullptr;
    for (const char *one : containers(file)) {
        CUlibrary library;
        CUkernel found;
        if (load(&library, one, false) != CUDA_SUCCESS) continue;
        if (cuLibraryGetKernel(&found, library, "sample_tell") == CUDA_SUCCESS) image = one;
        MUST(cuLibraryUnload(library));
    }
    if (!image) die("no container of the sample loads and has its kernel");
    const volatile Word *word = pinned_words(8);
    Word value = 0;
    const Wrapper wrapper = {0x466243B1, 1, image, nullptr};
    const struct {
        const char *name;
        const void *code;
        int how; // 0 library, 1 library that is kept, 2 module
    } ways[] = {{"library, container", image, 0},  {"kept by us", image, 1},
                {"library, wrapper", &wrapper, 0}, {"wrapper, kept by us", &wrapper, 1},
                {"module, container", image, 2},   {"module, wrapper", &wrapper, 2}};
    std::string list;
    for (const auto &way : ways) {
        std::vector<double> load_us, get_us;
        std::string says = "works";
        for (int round = 0; round < 7 && says == "works"; round++) {
            CUlibrary library = nullptr;
            CUmodule module = nullptr;
            CUresult result;
            load_us.push_back(took_us([&] {
                result = way.how == 2 ? cuModuleLoadData(&module, way.code) : load(&library, way.code, way.how == 1);
            }));
            if (result != CUDA_SUCCESS) {
                says = name(result);
                break;
            }
            CUfunction tell = nullptr;
            get_us.push_back(took_us([&] {
                CUkernel found;
                if (way.how == 2)
                    result = cuModuleGetFunction(&tell, module, "sample_tell");
                else if ((result = cuLibraryGetKernel(&found, library, "sample_tell")) == CUDA_SUCCESS)
                    result = cuKernelGetFunction(&tell, found);
            }));
            if (result != CUDA_SUCCESS)
                says = std::string("loads, but ") + name(result);
            else if (!runs(tell, word, ++value))
                says = "runs WRONG";
            if (way.how == 2)
                MUST(cuModuleUnload(module));
            else
                MUST(cuLibraryUnload(library));
        }
        printf("sample, %s: %s: load %.0f us, kernel %.0f us\n", way.name, says.c_str(), median(load_us),
               median(get_us));
        list += text("%s%s %s (%.0f + %.0f us)", list.empty() ? "" : "; ", way.name, says.c_str(), median(load_us),
                     median(get_us));
    }
    row(8, "a library of four kernels: load + get a kernel", list, "mapped read-only from its file, another process's");
}

int main(int count, char **arguments) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) die("socketpair");
    const pid_t child = in_child([&] {
        close(ends[0]);
        open_device();
        for (int file = 1; file < count; file++) {
            const Mapped mapped = map_file(receive_descriptor(ends[1]));
            const char *slash = strrchr(arguments[file], '/');
            if (file == 1)
                sample(mapped);
            else
                whole(slash ? slash + 1 : arguments[file], mapped);
        }
    });
    close(ends[1]);
    for (int file = 1; file < count; file++) {
        const int descriptor = open(arguments[file], O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) die(arguments[file]);
        send_descriptor(ends[0], descriptor);
        close(descriptor);
    }
    if (!ended_well(child)) die("the importer failed");
    return 0;
}
