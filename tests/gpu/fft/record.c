// Writes down which transforms a program plans and executes with cuFFT: preload it, and name a file in FFT_LOG.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef long long Long;

static void *symbol(const char *name) {
    static void *library;
    if (!library) library = dlopen("libcufft.so.12", RTLD_NOW | RTLD_NOLOAD);
    if (!library) library = dlopen("libcufft.so.12", RTLD_NOW);
    void *found = library ? dlsym(library, name) : 0;
    if (!found) fprintf(stderr, "record: no %s\n", name), abort();
    return found;
}

static void note(const char *format, ...) {
    static FILE *log;
    if (!log) log = fopen(getenv("FFT_LOG"), "a");
    if (!log) abort();
    va_list list;
    va_start(list, format);
    vfprintf(log, format, list);
    va_end(list);
    fflush(log);
}

static void numbers(const char *name, const Long *all, const int *small, int count) {
    note(", \"%s\": ", name);
    if (!all && !small) {
        note("null");
        return;
    }
    for (int at = 0; at < count; at++) note("%c%lld", at ? ',' : '[', all ? all[at] : (Long)small[at]);
    note("]");
}

static void planned(int plan, int rank, const Long *n, const int *small, const Long *in, const int *small_in, Long istride, Long idist,
                    int itype, const Long *out, const int *small_out, Long ostride, Long odist, int otype, Long batch) {
    note("{\"plan\": %d", plan);
    numbers("sides", n, small, rank);
    numbers("inembed", in, small_in, rank);
    numbers("onembed", out, small_out, rank);
    note(", \"input\": [%lld, %lld, %d], \"output\": [%lld, %lld, %d], \"batch\": %lld}\n", istride, idist, itype, ostride, odist, otype, batch);
}

// cufftType: elements of its ends.
static void ends(int type, int *input, int *output) {
    static const int known[][3] = {{0x2a, 0, 4}, {0x2c, 4, 0}, {0x29, 4, 4}, {0x6a, 1, 5}, {0x6c, 5, 1}, {0x69, 5, 5}};
    for (unsigned at = 0; at < sizeof known / sizeof *known; at++) {
        if (known[at][0] == type) *input = known[at][1], *output = known[at][2];
    }
}

int cufftXtMakePlanMany(int plan, int rank, Long *n, Long *in, Long istride, Long idist, int itype, Long *out, Long ostride, Long odist,
                        int otype, Long batch, size_t *size, int kind) {
    planned(plan, rank, n, 0, in, 0, istride, idist, itype, out, 0, ostride, odist, otype, batch);
    int (*real)(int, int, Long *, Long *, Long, Long, int, Long *, Long, Long, int, Long, size_t *, int) = symbol("cufftXtMakePlanMany");
    return real(plan, rank, n, in, istride, idist, itype, out, ostride, odist, otype, batch, size, kind);
}

int cufftMakePlanMany(int plan, int rank, int *n, int *in, int istride, int idist, int *out, int ostride, int odist, int type, int batch,
                      size_t *size) {
    int itype = -1, otype = -1;
    ends(type, &itype, &otype);
    planned(plan, rank, 0, n, 0, in, istride, idist, itype, 0, out, ostride, odist, otype, batch);
    int (*real)(int, int, int *, int *, int, int, int *, int, int, int, int, size_t *) = symbol("cufftMakePlanMany");
    return real(plan, rank, n, in, istride, idist, out, ostride, odist, type, batch, size);
}

int cufftMakePlan1d(int plan, int n, int type, int batch, size_t *size) {
    int itype = -1, otype = -1;
    ends(type, &itype, &otype);
    planned(plan, 1, 0, &n, 0, 0, 1, 0, itype, 0, 0, 1, 0, otype, batch);
    int (*real)(int, int, int, int, size_t *) = symbol("cufftMakePlan1d");
    return real(plan, n, type, batch, size);
}

static void executed(int plan, int way, int in_place) { note("{\"execute\": %d, \"way\": %d, \"in_place\": %d}\n", plan, way, in_place); }

int cufftXtExec(int plan, void *in, void *out, int way) {
    executed(plan, way, in == out);
    int (*real)(int, void *, void *, int) = symbol("cufftXtExec");
    return real(plan, in, out, way);
}

#define EXECUTES(name)                                         \
    int name(int plan, void *in, void *out, int way) {         \
        executed(plan, way, in == out);                        \
        int (*real)(int, void *, void *, int) = symbol(#name); \
        return real(plan, in, out, way);                       \
    }
EXECUTES(cufftExecC2C)
EXECUTES(cufftExecZ2Z)

#define EXECUTES_ONE_WAY(name, way)                       \
    int name(int plan, void *in, void *out) {             \
        executed(plan, way, in == out);                   \
        int (*real)(int, void *, void *) = symbol(#name); \
        return real(plan, in, out);                       \
    }
EXECUTES_ONE_WAY(cufftExecR2C, -1)
EXECUTES_ONE_WAY(cufftExecD2Z, -1)
EXECUTES_ONE_WAY(cufftExecC2R, 1)
EXECUTES_ONE_WAY(cufftExecZ2D, 1)
