"""PyTorch on Millpond's memory.

``enable()`` makes every CUDA tensor of the process come from Millpond. ``mem_pool()`` makes a ``torch.cuda.MemPool``
whose memory comes from Millpond while the rest stays with PyTorch's own allocator. A process does one or the other:
PyTorch refuses a pool beside an allocator that was changed.
"""

import functools

from ._library import address_of, library, library_path
from ._memory import empty_cache, memory_picture, reset_peaks, statistics

__all__ = ["allocator", "empty_cache", "enable", "is_enabled", "mem_pool", "memory_picture", "reset_peaks", "statistics"]

#: What PyTorch's allocator object can be told, beyond how to allocate and free: its method, and our function.
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
    """PyTorch, or words that say that it is missing."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"millpond.torch needs PyTorch, which cannot be imported here ({error})") from error
    return torch


@functools.lru_cache(maxsize=None)
def allocator():
    """The ``CUDAPluggableAllocator`` of this library, with all its functions."""
    torch = _torch()
    library()  # A library that cannot be loaded is said here, in words.
    made = torch.cuda.memory.CUDAPluggableAllocator(library_path(), "millpond_torch_alloc", "millpond_torch_free")
    connect(made.allocator())
    return made


def connect(native):
    """Tells PyTorch's allocator object our functions. One that it lacks is an error: without ``record_stream`` memory
    would be given away too early."""
    for method, function in _HOOKS.items():
        tell = getattr(native, method, None)
        if tell is None:
            raise RuntimeError(f"this version of PyTorch has no {method}; Millpond needs it")
        tell(address_of(function))


def enable():
    """Makes PyTorch allocate all CUDA memory through Millpond. Before the first CUDA tensor of the process; a second
    call has no effect."""
    global _enabled
    if _enabled:
        return
    _torch().cuda.memory.change_current_allocator(allocator())
    _enabled = True


def is_enabled():
    """Whether ``enable`` was called."""
    return _enabled


def mem_pool():
    """A ``torch.cuda.MemPool`` on Millpond's memory, for ``torch.cuda.use_mem_pool``. PyTorch keeps the pool's memory
    in segments of its own making; Millpond serves the segments.

    Not in a process that called ``enable()``: PyTorch refuses that, and all its memory is Millpond's there anyway.
    ``RuntimeError`` says so."""
    if _enabled:
        raise RuntimeError(
            "millpond.torch.mem_pool() after enable(): all memory of this process is Millpond's already, and PyTorch "
            "refuses a MemPool beside an allocator that was changed; use one of the two in a process"
        )
    return _torch().cuda.MemPool(allocator().allocator())
