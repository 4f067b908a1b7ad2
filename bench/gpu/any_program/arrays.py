"""Arrays of CuPy on two streams, with what a round takes: arrays.py cupy|rmm, from its asynchronous pool or RMM's."""

import sys
import time

import cupy

if sys.argv[1:] == ["rmm"]:
    import rmm
    from rmm.allocators.cupy import rmm_cupy_allocator

    rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())
    cupy.cuda.set_allocator(rmm_cupy_allocator)
else:
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
one, two = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
least, wrong = 1e9, 0
for turn in range(6):
    start = time.perf_counter()
    for number in range(200):
        with one:
            made = cupy.full(1000 * (1 + number % 50), number, dtype=cupy.float32)
            done = one.record()
        with two:
            two.wait_event(done)
            total = made.sum()
        one.wait_event(two.record())
        del made
        if number % 50 == 0:
            two.synchronize()
            wrong += int(float(total) != number * 1000.0 * (1 + number % 50))
    two.synchronize()
    least = min(least, (time.perf_counter() - start) / 200)
free, whole = cupy.cuda.runtime.memGetInfo()
print(f"{least * 1e6:.1f} us a round, {wrong} wrong, {(whole - free) / 2**20:.0f} MiB of the device in use")
