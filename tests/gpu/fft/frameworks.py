"""What PyTorch and CuPy have cuFFT do, for `record.c` to write down: frameworks.py torch|cupy"""

import sys


def torch_calls():
    import torch

    def make(*shape, kind=torch.complex64):
        return torch.randn(*shape, dtype=kind, device="cuda")

    for length in (2, 7, 64, 97, 100, 128, 243, 1000, 1024, 4096, 8192, 65536):
        torch.fft.ifft(torch.fft.fft(make(4, length)))
        torch.fft.irfft(torch.fft.rfft(make(4, length, kind=torch.float32)), length)
    for kind in (torch.complex64, torch.complex128):
        torch.fft.ifft2(torch.fft.fft2(make(3, 48, 80, kind=kind)))
        torch.fft.ifftn(torch.fft.fftn(make(2, 12, 18, 20, kind=kind), dim=(1, 2, 3)))
        torch.fft.fft(make(33, 65, kind=kind), dim=0)
        torch.fft.fft(make(33, 65, kind=kind).t())
        torch.fft.fftn(make(5, 6, 7, 8, kind=kind))
    for kind in (torch.float32, torch.float64):
        torch.fft.irfft2(torch.fft.rfft2(make(3, 48, 81, kind=kind)), s=(48, 81))
        torch.fft.rfftn(make(2, 16, 17, 18, kind=kind))
        torch.fft.hfft(torch.fft.ihfft(make(5, 40, kind=kind)), 40)
    sound = make(2, 16000, kind=torch.float32)
    spectrum = torch.stft(sound, 400, 160, window=torch.hann_window(400, device="cuda"), return_complex=True)
    torch.istft(spectrum, 400, 160, window=torch.hann_window(400, device="cuda"))
    image, filters = make(4, 3, 64, 64, kind=torch.float32), make(8, 3, 64, 64, kind=torch.float32)
    torch.fft.irfft2(torch.einsum("nchw,kchw->nkhw", torch.fft.rfft2(image), torch.fft.rfft2(filters)))
    torch.cuda.synchronize()


def cupy_calls():
    import cupy

    def make(*shape, kind=cupy.complex64):
        values = cupy.random.standard_normal(shape)
        return (values + (1j * cupy.random.standard_normal(shape) if kind(0).dtype.kind == "c" else 0)).astype(kind)

    for length in (3, 16, 50, 127, 512, 1500, 2048, 16384):
        cupy.fft.ifft(cupy.fft.fft(make(5, length)))
        cupy.fft.irfft(cupy.fft.rfft(make(5, length, kind=cupy.float64)), length)
    for axes in ((0, 1), (1, 2), (0, 1, 2)):
        cupy.fft.ifftn(cupy.fft.fftn(make(8, 9, 10), axes=axes), axes=axes)
    cupy.fft.fft(make(20, 30, kind=cupy.complex128), axis=0)
    cupy.fft.irfft2(cupy.fft.rfft2(make(30, 32, kind=cupy.float32)))
    cupy.fft.rfftn(make(6, 10, 12, kind=cupy.float32))
    cupy.cuda.Device().synchronize()


{"torch": torch_calls, "cupy": cupy_calls}[sys.argv[1]]()
