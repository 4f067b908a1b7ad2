"""Tests that call the driver: `test_b` and `test_d` free memory that a stream may still use."""
import ctypes
import unittest

cuda = ctypes.CDLL("libcuda.so.1")


def must(code):
    assert code == 0, code


def begin():
    context, streams = ctypes.c_void_p(), [ctypes.c_void_p(), ctypes.c_void_p()]
    must(cuda.cuInit(0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    must(cuda.cuCtxSetCurrent(context))
    for stream in streams:
        must(cuda.cuStreamCreate(ctypes.byref(stream), 1))
    return streams


def use(s, t, is_right):
    at = ctypes.c_uint64()
    must(cuda.cuMemAllocAsync(ctypes.byref(at), ctypes.c_size_t(4096), s))
    must(cuda.cuStreamSynchronize(s))
    must(cuda.cuMemsetD8Async(at, 0, ctypes.c_size_t(4096), t))  # used
    if is_right:
        must(cuda.cuStreamSynchronize(t))
    must(cuda.cuMemFreeAsync(at, s))  # freed


class TestOrder(unittest.TestCase):
    def setUp(self):
        self.s, self.t = begin()

    def test_a_right(self):
        use(self.s, self.t, True)

    def test_b_wrong(self):
        use(self.s, self.t, False)

    def test_c_right(self):
        use(self.s, self.t, True)

    def test_d_wrong_at_the_same_lines(self):
        use(self.s, self.t, False)

    def test_e_without_calls(self):
        pass
