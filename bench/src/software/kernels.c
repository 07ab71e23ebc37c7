/* The kernels of kernels.ptx on one thread. Prints a name and the least seconds of so many runs, line by line. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SIDE 1024
#define PLANE (SIDE * SIDE)
#define MATRIX 512
#define LONG (16 << 20)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static float *filled(size_t count) {
    float *array = malloc(count * sizeof *array);
    if (!array) exit(1);
    for (size_t i = 0; i < count; i++) array[i] = 1.0f;
    return array;
}

__attribute__((noinline)) static void saxpy(const float *x, float *y, float a, int n) {
    for (int i = 0; i < n; i++) y[i] = a * x[i] + y[i];
}

__attribute__((noinline)) static void stencil(const float *from, float *to, int n) {
    for (int i = 1025; i < n - 1025; i++)
        to[i] = 0.5f * from[i] + 0.125f * ((from[i + 1] + from[i - 1]) + (from[i + SIDE] + from[i - SIDE]));
}

__attribute__((noinline)) static void matmul(const float *a, const float *b, float *c, int n) {
    for (int row = 0; row < n; row++)
        for (int column = 0; column < n; column++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
            c[row * n + column] = sum;
        }
}

__attribute__((noinline)) static void add(const float *a, const float *b, float *c, int n) {
    for (int i = 0; i < n; i++) c[i] = a[i] + b[i];
}

#define LEAST(name, runs, call)                        \
    do {                                               \
        double least = 1e9;                            \
        for (int run = 0; run < (runs); run++) {       \
            double start = now();                      \
            call;                                      \
            double took = now() - start;               \
            if (took < least) least = took;            \
        }                                              \
        printf("%s %.9f\n", name, least);              \
    } while (0)

int main(int count, char **arguments) {
    int runs = count > 1 ? atoi(arguments[1]) : 5;
    float *a = filled(LONG), *b = filled(LONG), *c = filled(LONG);
    LEAST("saxpy", runs, saxpy(a, b, 2.0f, PLANE));
    LEAST("stencil", runs, stencil(a, c, PLANE));
    LEAST("matmul", runs, matmul(a, b, c, MATRIX));
    LEAST("add", runs, add(a, b, c, LONG));
    return c[LONG / 2] == 0.0f;
}
