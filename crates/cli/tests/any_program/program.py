"""A program of Python that calls the driver: wrong ones, for each name one, and places that are hard to name."""
import ctypes
import sys
import threading

mode, how = sys.argv[1:3]
# A CDLL releases the interpreter's lock during a call, a PyDLL does not.
cuda = (ctypes.PyDLL if how == "held" else ctypes.CDLL)("libcuda.so.1")
BYTES = 4096


def must(code):
    assert code == 0, code


context = ctypes.c_void_p()


def begin():
    streams = [ctypes.c_void_p(), ctypes.c_void_p()]
    must(cuda.cuInit(0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    must(cuda.cuCtxSetCurrent(context))
    for stream in streams:
        must(cuda.cuStreamCreate(ctypes.byref(stream), 1))
    return streams


class Tensor:
    def __init__(self, stream):
        self.at = ctypes.c_uint64()
        must(cuda.cuMemAllocAsync(ctypes.byref(self.at), ctypes.c_size_t(BYTES), stream))  # allocated

    def fill(self, stream):
        must(
            cuda.cuMemsetD8Async(  # filled
                self.at,
                0,
                ctypes.c_size_t(BYTES),
                stream,
            )
        )

    def free(self, stream):
        must((lambda: cuda.cuMemFreeAsync(self.at, stream))())  # freed


def batches(s, count):
    for _ in range(count):
        tensor = Tensor(s)
        tensor.fill(s)
        yield tensor


def in_a_thread(act, *args):
    def run():
        must(cuda.cuCtxSetCurrent(context))
        act(*args)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


s, t = begin()
if mode == "freed-while-used":
    for tensor in batches(s, 3):
        must(cuda.cuStreamSynchronize(s))
        in_a_thread(tensor.fill, t)
        in_a_thread(tensor.free, s)
elif mode == "made-code":
    # Code that is compiled and dropped repeatedly: other code takes its place in memory.
    for number in range(3000):
        lines = number % 5 * "\n"
        exec(compile(f"{lines}tensor = Tensor(s)\ntensor.fill(s)\ntensor.free(s)", f"right{number % 3}.py", "exec"))
        if number % 1000 == 999:
            exec(compile(f"{lines}cuda.cuMemFreeAsync(tensor.at, s)", f"\twrong{number // 1000}ä.py", "exec"))
print("done")
