"""The figures of training runs, as one table: reads `torch-PROGRAM-ALLOCATOR-ROUND.txt` files of a folder.

Step times of one round were taken one after the other: `against` is the median over the rounds of Millpond's step time
divided by the other's in the same round.
"""

import pathlib
import re
import statistics
import sys

steps, peaks, losses = {}, {}, {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("torch-*-*-*.txt")):
    _, program, allocator, number = path.stem.split("-")
    text = path.read_text()
    step = re.search(r"step median ([\d.]+) ms", text)
    peak = re.search(r"peak reserved ([\d.]+) MiB, peak allocated ([\d.]+) MiB, ratio ([\d.]+)", text)
    if not step or not peak:
        print(f"{path.name}: no figures: {text.strip().splitlines()[-1:] or 'empty'}")
        continue
    steps.setdefault((program, allocator), {})[number] = float(step.group(1))
    peaks.setdefault((program, allocator), []).append(tuple(map(float, peak.groups())))
    losses.setdefault(program, set()).add(re.search(r"losses (.*)", text).group(1))
print(f"{'program':10}{'allocator':12}{'step ms':>10}{'against':>10}{'reserved MiB':>14}{'allocated MiB':>15}{'ratio':>8}")
for (program, allocator), rounds in steps.items():
    ours = steps.get((program, "millpond"), {})
    pairs = [ours[number] / rounds[number] for number in rounds if number in ours]
    against = f"{statistics.median(pairs):.3f}" if pairs else ""
    reserved, allocated, ratio = max(peaks[program, allocator])
    step = statistics.median(rounds.values())
    print(f"{program:10}{allocator:12}{step:10.2f}{against:>10}{reserved:14.0f}{allocated:15.0f}{ratio:8.3f}")
for program, found in losses.items():
    print(f"{program}: losses {'are the same in all runs' if len(found) == 1 else 'differ: ' + str(sorted(found))}")
