// Histograms by even bins and by ranges, and of one channel of pixels.
#include "compare.h"

#include <cub/device/device_histogram.cuh>

int main(int argc, char **argv) {
    const Program program("cub_histogram", argc, argv);
    const int n = program.large ? (1 << 24) + 5 : 100043;
    constexpr int bins = 100;
    std::vector<float> host(n);
    std::vector<int> should(bins), ranged(3);
    const std::vector<float> borders = {0.0f, 10.0f, 50.0f, 60.0f};
    for (int i = 0; i < n; i++) {
        host[i] = uniform(i) * 128.0f;
        if (host[i] < bins) should[static_cast<int>(host[i])]++;
        for (int bin = 0; bin < 3; bin++) ranged[bin] += host[i] >= borders[bin] && host[i] < borders[bin + 1];
    }
    thrust::device_vector<float> device(host.begin(), host.end()), levels(borders.begin(), borders.end());
    thrust::device_vector<int> counts(bins);
    CUB(cub::DeviceHistogram::HistogramEven, raw(device), raw(counts), bins + 1, 0.0f, static_cast<float>(bins), n);
    same("even", fetched(counts), should);
    counts.resize(3);
    CUB(cub::DeviceHistogram::HistogramRange, raw(device), raw(counts), 4, raw(levels), n);
    same("ranges", fetched(counts), ranged);
    return Program::pass("n=%d", n);
}
