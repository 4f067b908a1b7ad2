"""An array that two streams use, from CuPy's asynchronous pool or RMM's.

pools.py cupy|rmm [wrong]: with `wrong` the second stream is not waited for before the array goes.
"""

import sys

import cupy

which, is_wrong = sys.argv[1], sys.argv[2:] == ["wrong"]
if which == "rmm":
    import rmm
    from rmm.allocators.cupy import rmm_cupy_allocator

    rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())
    cupy.cuda.set_allocator(rmm_cupy_allocator)
else:
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
one, two = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
with one:
    warm = cupy.arange(1000, dtype=cupy.float32).sum()
one.synchronize()
for number in range(20):
    with one:
        data = cupy.full(1 << 20, number, dtype=cupy.float32)
    two.wait_event(one.record())
    with two:
        total = data.sum()
    if not is_wrong:
        one.wait_event(two.record())
    with one:
        del data
    two.synchronize()
    assert float(total) == number * float(1 << 20) or is_wrong, number
    del total
print("done")
