// Multiplies a sparse matrix (compressed rows) with a vector: a thread per row, then a warp per row.
#include "program.h"

#include <cmath>
#include <vector>

__global__ void row_per_thread(const int *begins, const int *columns, const float *values, const float *x, float *y,
                               int rows) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int i = begins[row]; i < begins[row + 1]; i++) sum += values[i] * x[columns[i]];
    y[row] = sum;
}

__global__ void row_per_warp(const int *begins, const int *columns, const float *values, const float *x, float *y,
                             int rows) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0;
    for (int i = begins[row] + lane; i < begins[row + 1]; i += 32) sum += values[i] * x[columns[i]];
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (lane == 0) y[row] = sum;
}

static double compare(const char *kernel, const std::vector<float> &y, const std::vector<double> &expected,
                      const std::vector<double> &magnitude) {
    double worst = 0;
    for (size_t row = 0; row < y.size(); row++) {
        const double error = std::fabs(y[row] - expected[row]) / (magnitude[row] + 1e-30);
        if (!(error < 1e-5)) Program::fail("%s: y[%zu] = %.9g, not %.9g", kernel, row, y[row], expected[row]);
        if (error > worst) worst = error;
    }
    return worst;
}

int main(int argc, char **argv) {
    const Program program("spmv", argc, argv);
    const int rows = program.large ? 400003 : 2003;
    std::vector<int> begins(1, 0), columns;
    std::vector<float> values, x(rows), y(rows);
    std::vector<double> expected(rows), magnitude(rows);
    for (int i = 0; i < rows; i++) x[i] = uniform(i) - 0.5f;
    for (int row = 0; row < rows; row++) {
        // Rows of 0 to 23 entries, now and then one of 100.
        const int length = row % 97 == 5 ? 100 : hash(row) % 24;
        for (int i = 0; i < length; i++) {
            const int column = hash(row * 131 + i) % rows;
            const float value = uniform(row * 137 + i) - 0.5f;
            columns.push_back(column);
            values.push_back(value);
            const double product = static_cast<double>(value) * x[column];
            expected[row] += product;
            magnitude[row] += std::fabs(product);
        }
        begins.push_back(static_cast<int>(columns.size()));
    }

    int *device_begins, *device_columns;
    float *device_values, *device_x, *device_y;
    CHECK(cudaMalloc(&device_begins, begins.size() * sizeof(int)));
    CHECK(cudaMalloc(&device_columns, columns.size() * sizeof(int)));
    CHECK(cudaMalloc(&device_values, values.size() * sizeof(float)));
    CHECK(cudaMalloc(&device_x, rows * sizeof(float)));
    CHECK(cudaMalloc(&device_y, rows * sizeof(float)));
    CHECK(cudaMemcpy(device_begins, begins.data(), begins.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_columns, columns.data(), columns.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_values, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_x, x.data(), rows * sizeof(float), cudaMemcpyHostToDevice));

    row_per_thread<<<(rows + 127) / 128, 128>>>(device_begins, device_columns, device_values, device_x, device_y, rows);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(y.data(), device_y, rows * sizeof(float), cudaMemcpyDeviceToHost));
    double worst = compare("row per thread", y, expected, magnitude);

    CHECK(cudaMemset(device_y, 0xff, rows * sizeof(float)));
    row_per_warp<<<(rows + 3) / 4, 128>>>(device_begins, device_columns, device_values, device_x, device_y, rows);
    CHECK_KERNEL();
    CHECK(cudaMemcpy(y.data(), device_y, rows * sizeof(float), cudaMemcpyDeviceToHost));
    worst = std::fmax(worst, compare("row per warp", y, expected, magnitude));

    CHECK(cudaFree(device_begins));
    CHECK(cudaFree(device_columns));
    CHECK(cudaFree(device_values));
    CHECK(cudaFree(device_x));
    CHECK(cudaFree(device_y));
    return Program::pass("%d rows, %zu entries, error %.1e", rows, values.size(), worst);
}
