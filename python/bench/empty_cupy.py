"""Host time of cupy.empty(16384) and drop, in nanoseconds: `python bench/empty_cupy.py [millpond]`."""

import pathlib
import statistics
import sys
import time

import cupy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
CALLS, ROUNDS = 100_000, 9


def main():
    name = "millpond" if "millpond" in sys.argv[1:] else "CuPy's pool"
    if name == "millpond":
        import millpond.cupy

        millpond.cupy.enable()
    cupy.empty(16384, dtype=cupy.uint8)
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            cupy.empty(16384, dtype=cupy.uint8)
        times.append((time.perf_counter_ns() - begin) / CALLS)
    print(f"cupy.empty(16384) and drop, {name}: median {statistics.median(times):.1f} ns")


if __name__ == "__main__":
    main()
