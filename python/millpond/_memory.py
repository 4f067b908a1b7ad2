"""Figures of a device's memory, and memory by address."""

import ctypes
import dataclasses
import json

from ._library import PoolStatistics, check, library

#: The largest size passed to C. It is more than any device has, and larger sizes are out of memory just the same.
_SIZE_MAX = (1 << 63) - 1


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Figures of a device's memory, in bytes."""

    #: Allocated and not freed, as requested.
    used: int
    #: The most of that since the last ``reset_peaks``.
    used_high: int
    #: Physical memory.
    reserved: int
    #: The most of that since the last ``reset_peaks``.
    reserved_high: int


def _device(number):
    """Checks that a device's number fits C's type: ctypes would cut it to its lower bits."""
    if not 0 <= number < 1 << 31:
        raise ValueError(f"there is no device {number}")
    return number


def _handle(value, what):
    """Checks that an address or a stream's handle fits C's type."""
    if not 0 <= value < 1 << 64:
        raise ValueError(f"there is no {what} {value}")
    return value


def use_host(host=True):
    """Makes device numbers mean host devices. Call this before the first allocation or query."""
    check(library().millpond_torch_use_host(int(host)))


def statistics(device=0):
    """Returns the used and reserved bytes of a device, including the private pools of graphs."""
    figures = PoolStatistics()
    check(library().millpond_torch_get_statistics(ctypes.byref(figures), _device(device)))
    return Statistics(figures.used_bytes, figures.used_high_bytes, figures.reserved_bytes, figures.reserved_high_bytes)


def reset_peaks(device=0):
    """Sets the peaks to the current values."""
    check(library().millpond_torch_reset_peaks(_device(device)))


def empty_cache():
    """Gives idle memory of all devices back to the system."""
    library().millpond_torch_empty_cache()


def allocate(nbytes, device=0, stream=0):
    """Allocates on a stream, given by its handle. Returns the address, 0 for no bytes. Raises ``OutOfMemory``."""
    if nbytes < 0:
        raise ValueError(f"{nbytes} bytes")
    nbytes = min(nbytes, _SIZE_MAX)  # ctypes would cut it to its lower bits.
    pointer = ctypes.c_void_p()
    check(library().millpond_trusted_malloc(ctypes.byref(pointer), nbytes, _device(device), _handle(stream, "stream")))
    return pointer.value or 0


def free(address, device=0, stream=0):
    """Frees at this point of a stream."""
    check(library().millpond_trusted_free(_handle(address, "address"), _device(device), _handle(stream, "stream")))


def memory_picture(path=None, device=0):
    """Returns the live memory of a device: a dictionary with its pools, their figures and every allocation.

    With ``path`` it is also written there: as JSON if the name ends in ``.json``, else as a PyTorch snapshot (pickled),
    which https://pytorch.org/memory_viz and ``torch.cuda._memory_viz`` show.
    """
    text = ctypes.c_void_p()
    check(library().millpond_torch_memory_picture(ctypes.byref(text), _device(device)))
    try:
        picture = json.loads(ctypes.string_at(text.value).decode())
    finally:
        library().millpond_string_free(text.value)
    if path is not None:
        _write(picture, str(path), device)
    return picture


def _write(picture, path, device):
    if path.endswith(".json"):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(picture, file)
        return
    import pickle

    with open(path, "wb") as file:
        pickle.dump(snapshot(picture, device), file, protocol=3)


def snapshot(picture, device=0):
    """Returns a picture in the format of a PyTorch memory snapshot: each pool is one segment with its live blocks and
    the gaps between them."""
    segments = []
    for pool in picture["pools"]:
        live = pool["live"]
        if not live:
            continue
        start, end, blocks = live[0]["address"], live[0]["address"], []
        for one in live:
            if one["address"] > end:
                blocks.append(_block(end, one["address"] - end, 0, "inactive"))
            blocks.append(_block(one["address"], one["bytes"], one["requested"], "active_allocated"))
            end = one["address"] + one["bytes"]
        segments.append(
            {
                "device": device,
                "address": start,
                "total_size": end - start,
                "allocated_size": sum(one["bytes"] for one in live),
                "active_size": sum(one["bytes"] for one in live),
                "requested_size": sum(one["requested"] for one in live),
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": True,
                "frames": [],
                "blocks": blocks,
            }
        )
    return {
        "segments": segments,
        "device_traces": [[] for _ in range(device + 1)],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _block(address, size, requested, state):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": []}
