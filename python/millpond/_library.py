"""The shared library: its path, its functions, and its statuses as exceptions."""

import ctypes
import functools
import os
import pathlib

SUCCESS = 0
OUT_OF_MEMORY = 2


class Error(RuntimeError):
    """A refused call, with the reason as text. ``status`` is the value of ``millpond_status``."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class OutOfMemory(Error, MemoryError):
    """No memory is left. The text lists the holders of memory."""


class PoolStatistics(ctypes.Structure):
    _fields_ = [
        ("used_bytes", ctypes.c_uint64),
        ("used_high_bytes", ctypes.c_uint64),
        ("reserved_bytes", ctypes.c_uint64),
        ("reserved_high_bytes", ctypes.c_uint64),
    ]


class PoolKey(ctypes.Structure):
    _fields_ = [("first", ctypes.c_uint64), ("second", ctypes.c_uint64)]


def library_path():
    """Returns the path of the library: that of MILLPOND_LIBRARY, else the one in this package, else the system's."""
    given = os.environ.get("MILLPOND_LIBRARY")
    if given:
        return given
    own = pathlib.Path(__file__).with_name("libmillpond.so")
    return str(own) if own.exists() else "libmillpond.so"


@functools.lru_cache(maxsize=None)
def library():
    """Loads the library, once, and declares the types of its functions."""
    path = library_path()
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"{path} cannot be loaded ({error}). In a clone `cargo build --release -p millpond-capi` makes "
            "target/release/libmillpond.so: name it by MILLPOND_LIBRARY, or install the wheel (`pip install ./python`)"
        ) from error
    pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    place = ctypes.POINTER(ctypes.c_void_p)
    calls = {
        "millpond_trusted_malloc": [place, size, number, pointer],
        "millpond_trusted_free": [pointer, number, pointer],
        "millpond_torch_get_statistics": [ctypes.POINTER(PoolStatistics), number],
        "millpond_torch_reset_peaks": [number],
        "millpond_torch_memory_picture": [place, number],
        "millpond_torch_use_host": [number],
    }
    for name, arguments in calls.items():
        function = getattr(loaded, name)
        function.argtypes = arguments
        function.restype = number
    plain = {
        "millpond_torch_record_stream": [pointer, pointer],
        "millpond_torch_begin_allocate_to_pool": [number, PoolKey, pointer],
        "millpond_torch_end_allocate_to_pool": [number, PoolKey],
        "millpond_torch_release_pool": [number, PoolKey],
        "millpond_torch_empty_cache": [],
        "millpond_string_free": [pointer],
    }
    for name, arguments in plain.items():
        function = getattr(loaded, name)
        function.argtypes = arguments
        function.restype = None
    loaded.millpond_last_error.argtypes = []
    loaded.millpond_last_error.restype = ctypes.c_char_p
    return loaded


def check(status):
    """Raises if a call was refused."""
    if status == SUCCESS:
        return
    text = library().millpond_last_error().decode()
    raise (OutOfMemory if status == OUT_OF_MEMORY else Error)(status, text)


def address_of(name):
    """Returns the address of a function, for programs that take it as a number."""
    return ctypes.cast(getattr(library(), name), ctypes.c_void_p).value
