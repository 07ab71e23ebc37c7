// Question 5: whether the next process sees what a process left in device memory when it was killed.

#include "common.h"

constexpr Word PATTERN = 0x0123456789ABCDEF;

static CUmemAccessDesc access_to_device() {
    CUmemAccessDesc access = {};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}}, access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return access;
}

struct Piece {
    CUdeviceptr base;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
};

// All memory that there is, in pieces of 1 GiB, then of 64 and 2 MiB.
static std::vector<Piece> take_all(bool create, size_t limit) {
    std::vector<Piece> pieces;
    size_t sum = 0;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED, properties.location = access_to_device().location;
    for (const size_t bytes : {GIB, 64 * MIB, 2 * MIB})
        while (sum + bytes <= limit) {
            Piece piece = {0, bytes, 0};
            if (!create) {
                if (cuMemAlloc(&piece.base, bytes) != CUDA_SUCCESS) break;
            } else {
                if (cuMemCreate(&piece.handle, bytes, &properties, 0) != CUDA_SUCCESS) break;
                const CUmemAccessDesc access = access_to_device();
                MUST(cuMemAddressReserve(&piece.base, bytes, 0, 0, 0));
                if (cuMemMap(piece.base, bytes, 0, piece.handle, 0) != CUDA_SUCCESS ||
                    cuMemSetAccess(piece.base, bytes, &access, 1) != CUDA_SUCCESS)
                    break;
            }
            pieces.push_back(piece);
            sum += bytes;
        }
    return pieces;
}

static void give_back(const std::vector<Piece> &pieces) {
    for (const Piece &piece : pieces)
        if (!piece.handle)
            MUST(cuMemFree(piece.base));
        else {
            MUST(cuMemUnmap(piece.base, piece.bytes));
            MUST(cuMemRelease(piece.handle));
            MUST(cuMemAddressFree(piece.base, piece.bytes));
        }
}

static void filled(CUmodule module, const std::vector<Piece> &pieces) {
    const CUfunction fill = kernel(module, "fill");
    for (const Piece &piece : pieces)
        launch(fill, nullptr, 132 * 8, 512, piece.base, Word{piece.bytes / 8}, Word{PATTERN});
    MUST(cuCtxSynchronize());
}

static double gib(const std::vector<Piece> &pieces) {
    double sum = 0;
    for (const Piece &piece : pieces) sum += double(piece.bytes) / GIB;
    return sum;
}

// "GiB looked at, words that are not zero, words of the pattern"
static std::string looked(CUmodule module, const std::vector<Piece> &pieces) {
    const CUfunction look = kernel(module, "look");
    const volatile Word *counts = pinned_words(8);
    for (const Piece &piece : pieces)
        launch(look, nullptr, 132 * 8, 512, piece.base, Word{piece.bytes / 8}, Word{PATTERN}, address(counts));
    MUST(cuCtxSynchronize());
    return text("%.2f %llu %llu", gib(pieces), counts[0], counts[1]);
}

static int role(const std::string &what, bool create) {
    open_device();
    const CUmodule module = load_kernels();
    // Code is loaded, and both kernels have run, before there is no memory left for them.
    CUdeviceptr small;
    const volatile Word *counts = pinned_words(8);
    MUST(cuMemAlloc(&small, 4096));
    filled(module, {{small, 4096, 0}});
    launch(kernel(module, "look"), nullptr, 132 * 8, 512, small, Word{512}, Word{PATTERN}, address(counts));
    MUST(cuCtxSynchronize());
    if (counts[1] != 512) die("the pattern is not found where it is");
    std::vector<Piece> pieces;
    if (what == "same") {
        pieces = take_all(create, 32 * GIB);
        filled(module, pieces);
        give_back(pieces);
        pieces = take_all(create, 64 * GIB);
        printf("%s 0\n", looked(module, pieces).c_str());
        return 0;
    }
    const double ms = took_us([&] { pieces = take_all(create, ~size_t{0} / 2); }) / 1e3;
    if (what == "look") {
        printf("%s %.0f\n", looked(module, pieces).c_str(), ms);
        return 0;
    }
    filled(module, pieces);
    printf("%.2f\n", gib(pieces));
    fflush(stdout);
    pause();
    return 0;
}

int main(int count, char **arguments) {
    if (count == 3) return role(arguments[1], !strcmp(arguments[2], "cuMemCreate"));
    const char *kinds[] = {"cuMemAlloc", "cuMemCreate"};
    for (const char *filler : kinds)
        for (const char *looker : kinds) {
            int from = -1;
            const pid_t child = again({"fill", filler}, &from);
            const std::string left = line_of(from);
            kill(child, SIGKILL);
            waitpid(child, nullptr, 0);
            close(from);
            const pid_t next = again({"look", looker}, &from);
            double seen = 0, ms = 0;
            Word other = 0, same = 0;
            const bool right = sscanf(line_of(from).c_str(), "%lf %llu %llu %lf", &seen, &other, &same, &ms) == 4;
            close(from);
            if (!ended_well(next) || !right || left.empty()) die("a child failed");
            row(5, text("killed with %s, next takes %s", filler, looker),
                same ? text("%llu WORDS LEFT", same) : "nothing left",
                text("filled %s, looked at %.2f GiB (taken in %.0f ms); %llu words not zero", left.c_str(), seen, ms,
                     other));
        }
    for (const char *kind : kinds) {
        int from = -1;
        const pid_t child = again({"same", kind}, &from);
        double seen = 0;
        Word other = 0, same = 0;
        const bool right = sscanf(line_of(from).c_str(), "%lf %llu %llu", &seen, &other, &same) == 3;
        close(from);
        if (!ended_well(child) || !right) die("a child failed");
        row(5, text("same process, given back and taken again, %s", kind),
            same ? text("%.2f GiB left", double(same) * 8 / GIB) : "nothing left",
            text("32 filled, looked at %.2f GiB; %llu words not zero", seen, other));
    }
    return 0;
}
