"""Stream-ordered GPU memory for PyTorch and CuPy.

``millpond.torch.enable()`` and ``millpond.cupy.enable()`` make a program allocate through Millpond. The functions here
return figures of that memory. A device is a number, as in PyTorch. With ``use_host()`` the numbers mean host devices,
for tests on machines without a GPU.
"""

from ._library import Error, OutOfMemory, library_path
from ._memory import (
    Statistics,
    allocate,
    empty_cache,
    free,
    memory_picture,
    reset_peaks,
    statistics,
    use_host,
)

__all__ = [
    "Error",
    "OutOfMemory",
    "Statistics",
    "allocate",
    "empty_cache",
    "free",
    "library_path",
    "memory_picture",
    "reset_peaks",
    "statistics",
    "use_host",
]
__version__ = "0.1.0"
