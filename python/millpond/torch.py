"""PyTorch on Millpond's memory.

With ``enable()`` every CUDA tensor of the process comes from Millpond. ``mem_pool()`` makes a ``torch.cuda.MemPool``
whose memory comes from Millpond, while other tensors stay with PyTorch's own allocator. A process can use only one of
the two: PyTorch refuses a pool beside a changed allocator.
"""

import functools

from ._library import address_of, library, library_path
from ._memory import empty_cache, memory_picture, reset_peaks, statistics

__all__ = ["allocator", "empty_cache", "enable", "is_enabled", "mem_pool", "memory_picture", "reset_peaks", "statistics"]

#: The further functions of PyTorch's allocator object: its method to set each, and our function.
_HOOKS = {
    "set_record_stream_fn": "millpond_torch_record_stream",
    "set_reset_fn": "millpond_torch_empty_cache",
    "set_begin_allocate_to_pool": "millpond_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "millpond_torch_end_allocate_to_pool",
    "set_memory_fraction_fn": "millpond_torch_set_memory_fraction",
    "set_release_pool": "millpond_torch_release_pool",
}

_enabled = False


def _torch():
    """Returns PyTorch, or raises an error that says that it is missing."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"millpond.torch needs PyTorch, which cannot be imported here ({error})") from error
    return torch


@functools.lru_cache(maxsize=None)
def allocator():
    """Returns the ``CUDAPluggableAllocator`` of this library, with all its functions."""
    torch = _torch()
    library()  # Raises a readable error if the library cannot be loaded.
    made = torch.cuda.memory.CUDAPluggableAllocator(library_path(), "millpond_torch_alloc", "millpond_torch_free")
    connect(made.allocator())
    return made


def connect(native):
    """Sets our functions in PyTorch's allocator object. A missing method is an error: without ``record_stream`` memory
    would be reused too early."""
    for method, function in _HOOKS.items():
        tell = getattr(native, method, None)
        if tell is None:
            raise RuntimeError(f"this version of PyTorch has no {method}; Millpond needs it")
        tell(address_of(function))


def enable():
    """Makes PyTorch allocate all CUDA memory through Millpond. Call this before the first CUDA tensor of the process. A
    second call has no effect."""
    global _enabled
    if _enabled:
        return
    _torch().cuda.memory.change_current_allocator(allocator())
    _enabled = True


def is_enabled():
    """Returns ``True`` if ``enable`` was called."""
    return _enabled


def mem_pool():
    """Returns a ``torch.cuda.MemPool`` on Millpond's memory, for ``torch.cuda.use_mem_pool``. PyTorch divides the
    pool's memory into segments, and Millpond provides the segments.

    Raises ``RuntimeError`` in a process that called ``enable()``: PyTorch refuses a pool there, and all memory is
    Millpond's anyway."""
    if _enabled:
        raise RuntimeError(
            "millpond.torch.mem_pool() after enable(): all memory of this process is Millpond's already, and PyTorch "
            "refuses a MemPool beside an allocator that was changed; use one of the two in a process"
        )
    return _torch().cuda.MemPool(allocator().allocator())
