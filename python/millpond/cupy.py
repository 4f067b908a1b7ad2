"""CuPy on Millpond's memory."""

from ._library import address_of
from ._memory import allocate, free

__all__ = ["allocator", "enable"]


def _cupy():
    """Returns CuPy, or raises an error that says that it is missing."""
    try:
        import cupy
    except ImportError as error:
        raise ImportError(f"millpond.cupy needs CuPy, which cannot be imported here ({error})") from error
    return cupy


def allocator(cupy=None):
    """Returns an allocator for ``cupy.cuda.set_allocator``: a function of a size that allocates on the current stream.

    A block is freed on the stream that allocated it, as by CuPy's own pool. If other streams use an array, the program
    must order them with that stream. Memory that a stream allocates while it captures stays mapped for the rest of the
    process, for the replays of its graph. Every stream that allocated is kept open, because the library queries its
    progress later. The program must not destroy such a stream either if CuPy does not own it (``ExternalStream``).
    Raises ``OutOfMemory``, with a report of the holders of memory.
    """
    cupy = cupy or _cupy()
    current, of_stream = cupy.cuda.get_current_stream, {}
    calls = address_of("millpond_cupy_malloc"), address_of("millpond_cupy_free")

    def malloc(nbytes):
        now = current()
        stream = now.ptr
        own = of_stream.get(stream)
        if own is None:
            # CuPy destroys a stream with its last reference: this one keeps it.
            own = of_stream[stream] = cupy.cuda.memory.CFunctionAllocator(stream, *calls, now)
        memory = own.malloc(nbytes)
        while nbytes and not memory.ptr:
            # CuPy does not check for a null pointer. This call repeats the request, and raises the library's reason.
            device = cupy.cuda.Device().id
            free(allocate(nbytes, device, stream), device, stream)
            memory = own.malloc(nbytes)
        return memory

    return malloc


def enable():
    """Makes CuPy allocate through Millpond, without CuPy's own pool."""
    cupy = _cupy()
    cupy.cuda.set_allocator(allocator(cupy))
