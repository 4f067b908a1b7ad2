"""CuPy on Millpond's memory."""

from ._library import address_of
from ._memory import allocate, free

__all__ = ["allocator", "enable"]


def _cupy():
    """CuPy, or words that say that it is missing."""
    try:
        import cupy
    except ImportError as error:
        raise ImportError(f"millpond.cupy needs CuPy, which cannot be imported here ({error})") from error
    return cupy


def allocator(cupy=None):
    """What ``cupy.cuda.set_allocator`` takes: a function of a size, which allocates on the current stream.

    A block is freed on the stream that allocated it, as CuPy's own pool does: arrays that other streams use must be
    ordered with that one by the program. What a stream allocates while it captures stays mapped for the rest of the
    process, for the replays of its graph. Every stream that allocated is kept open: the library asks later how far it
    is. One that CuPy does not own (``ExternalStream``) must not be destroyed by the program either. Raises
    ``OutOfMemory``, with the report of who holds what.
    """
    cupy = cupy or _cupy()
    current, of_stream = cupy.cuda.get_current_stream, {}
    calls = address_of("millpond_cupy_malloc"), address_of("millpond_cupy_free")

    def malloc(nbytes):
        now = current()
        stream = now.ptr
        own = of_stream.get(stream)
        if own is None:
            # CuPy's stream is destroyed with its last name: this one stays.
            own = of_stream[stream] = cupy.cuda.memory.CFunctionAllocator(stream, *calls, now)
        memory = own.malloc(nbytes)
        while nbytes and not memory.ptr:
            # CuPy goes on with a null pointer. This call asks the library the same, and raises its reason.
            device = cupy.cuda.Device().id
            free(allocate(nbytes, device, stream), device, stream)
            memory = own.malloc(nbytes)
        return memory

    return malloc


def enable():
    """Makes CuPy allocate through Millpond, without a pool of its own above."""
    cupy = _cupy()
    cupy.cuda.set_allocator(allocator(cupy))
