// A small library as others build them: its fat binary lies in its file.

extern "C" __global__ void sample_tell(volatile unsigned long long *out, unsigned long long value) {
    *out = value;
    __threadfence_system();
}

template <int NUMBER> __global__ void filler(float *numbers) {
    for (int at = 0; at < NUMBER; at++) numbers[at] = numbers[at] * NUMBER + sinf(numbers[at + 1]);
}

extern "C" void sample_run(float *numbers) {
    filler<3><<<1, 1>>>(numbers);
    filler<5><<<1, 1>>>(numbers);
    filler<7><<<1, 1>>>(numbers);
    sample_tell<<<1, 1>>>(nullptr, 0);
}
