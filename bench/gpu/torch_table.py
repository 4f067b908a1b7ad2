"""The figures of training runs, as one table: reads `torch-PROGRAM-ALLOCATOR-ROUND.txt` files of a folder.

Step times of one round were taken one after the other: `against` is the median over the rounds of Millpond's step time
divided by the other's in the same round; so are the sum of the steps and what the host needs to issue one.
"""

import pathlib
import re
import statistics
import sys

FIGURES = {
    "step": r"step median ([\d.]+) ms",
    "sum": r"all ([\d.]+) s\n  issued",
    "issue": r"issued by the host in ([\d.]+) ms",
    "reserved": r"peak reserved ([\d.]+) MiB",
    "allocated": r"peak allocated ([\d.]+) MiB",
    "ratio": r"ratio ([\d.]+)",
}

runs, losses = {}, {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("torch-*-*-*.txt")):
    _, program, allocator, number = path.stem.split("-")
    text = path.read_text()
    found = {name: re.search(pattern, text) for name, pattern in FIGURES.items()}
    if not all(found.values()):
        print(f"{path.name}: no figures: {text.strip().splitlines()[-1:] or 'empty'}")
        continue
    figures = {name: float(match.group(1)) for name, match in found.items()}
    runs.setdefault((program, allocator), {})[number] = figures
    losses.setdefault(program, set()).add(re.search(r"losses (.*)", text).group(1))
print(f"{'program':12}{'allocator':12}{'step ms':>9}{'against':>9}{'sum':>8}{'issue':>8}", end="")
print(f"{'reserved MiB':>14}{'allocated MiB':>15}{'ratio':>8}")
for (program, allocator), rounds in runs.items():
    ours = runs.get((program, "millpond"), {})

    def against(name):
        pairs = [ours[number][name] / rounds[number][name] for number in rounds if number in ours]
        return f"{statistics.median(pairs):.3f}" if pairs else ""

    step = statistics.median(figures["step"] for figures in rounds.values())
    most = max(rounds.values(), key=lambda figures: figures["ratio"])
    print(f"{program:12}{allocator:12}{step:9.2f}{against('step'):>9}{against('sum'):>8}{against('issue'):>8}", end="")
    print(f"{most['reserved']:14.0f}{most['allocated']:15.0f}{most['ratio']:8.3f}")
for program, found in losses.items():
    print(f"{program}: losses {'are the same in all runs' if len(found) == 1 else 'differ: ' + str(sorted(found))}")
