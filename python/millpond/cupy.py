"""CuPy on Millpond's memory."""

from ._memory import allocate, free

__all__ = ["enable", "functions"]


def _cupy():
    """CuPy, or words that say that it is missing."""
    try:
        import cupy
    except ImportError as error:
        raise ImportError(f"millpond.cupy needs CuPy, which cannot be imported here ({error})") from error
    return cupy


def functions(stream_of=None):
    """CuPy's two functions: allocate and free, by address, on the current stream.

    A block is freed on the stream that allocated it, as CuPy's own pool does: arrays that other streams use must be
    ordered with that one by the program. ``stream_of`` gives the handle of the current stream.
    """
    if stream_of is None:
        cupy = _cupy()
        stream_of = lambda: cupy.cuda.get_current_stream().ptr
    streams = {}

    def malloc(nbytes, device):
        stream = stream_of()
        address = allocate(nbytes, device, stream)
        if address:
            streams[address] = stream
        return address

    def release(address, device):
        if address:
            free(address, device, streams.pop(address))

    return malloc, release


def enable():
    """Makes CuPy allocate through Millpond, without a pool of its own above."""
    cupy = _cupy()
    allocator = cupy.cuda.memory.PythonFunctionAllocator(*functions())
    cupy.cuda.set_allocator(allocator.malloc)
    return allocator
