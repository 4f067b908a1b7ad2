"""Host time of torch.empty(16384) and drop, in nanoseconds: `python bench/empty.py --allocator millpond`."""

import statistics
import time

import common

OPTIONS = common.arguments(__doc__.splitlines()[0])
ROUNDS = 9
torch = common.torch_with(OPTIONS.allocator)
CALLS = 100_000


def main():
    device = torch.device("cuda", 0)
    torch.empty(16384, device=device)
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            torch.empty(16384, device=device)
        times.append((time.perf_counter_ns() - begin) / CALLS)
    print(f"torch.empty(16384) and drop, allocator {OPTIONS.allocator}: median {statistics.median(times):.1f} ns")


if __name__ == "__main__":
    main()
