"""Training step times of two allocators, taken at the same time: one on each of two GPUs, then exchanged.

    python bench/side_by_side.py --passes 3

On a shared machine, runs one after the other differ by more than the allocators do. Here the two runs of a pair share
the same neighbours. `against` is the step time of Millpond divided by the other's: the median and the sum of the steps,
and the host's time to issue a step, as the geometric mean over both assignments of GPUs. The rows of one allocator
against itself show the remaining noise.
"""

import argparse
import math
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FIGURES = {
    "median": r"step median ([\d.]+) ms",
    "sum": r"all ([\d.]+) s\n  issued",
    "issue": r"issued by the host in ([\d.]+) ms",
    "ratio": r"ratio ([\d.]+)",
}
PAIRS = {
    "default": ("millpond", "default"),
    "expandable": ("millpond", "expandable"),
    "itself": ("default", "default"),
}


def pair(program, allocators, options):
    """Returns the figures of two runs at the same time, on GPU 0 and GPU 1."""

    def begin(gpu, allocator):
        command = [sys.executable, str(HERE / f"train_{program}.py"), "--allocator", allocator]
        command += ["--passes", str(options.passes)]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    running = [begin(gpu, allocator) for gpu, allocator in enumerate(allocators)]
    outputs = [run.communicate() for run in running]
    found = []
    for run, allocator, (text, errors) in zip(running, allocators, outputs):
        if run.returncode:
            raise SystemExit(f"{program} with {allocator} ended with {run.returncode}:\n{errors[-2000:]}")
        found.append({name: float(re.search(pattern, text).group(1)) for name, pattern in FIGURES.items()})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--against", nargs="+", choices=PAIRS, default=list(PAIRS))
    options = parser.parse_args()
    print(f"{'program':8}{'allocator':11}{'against':11}{'median':>8}{'sum':>8}{'issue':>8}{'step ms':>10}{'other':>10}{'ratio':>8}{'other':>8}")
    for program in ("gpt2", "resnet"):
        for one, other in (PAIRS[name] for name in options.against):
            ways = [pair(program, (one, other), options), pair(program, (other, one), options)[::-1]]
            mean = lambda values: math.exp(sum(map(math.log, values)) / len(values))
            against = [mean([ours[name] / theirs[name] for ours, theirs in ways]) for name in ("median", "sum", "issue")]
            steps = [mean([way[at]["median"] for way in ways]) for at in (0, 1)]
            ratios = [max(way[at]["ratio"] for way in ways) for at in (0, 1)]
            print(f"{program:8}{one:11}{other:11}{against[0]:8.3f}{against[1]:8.3f}{against[2]:8.3f}", end="")
            print(f"{steps[0]:10.2f}{steps[1]:10.2f}{ratios[0]:8.3f}{ratios[1]:8.3f}", flush=True)


if __name__ == "__main__":
    main()
