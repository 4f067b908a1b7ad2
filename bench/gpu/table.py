"""Rows of `workload peer value unit`, from files of several rounds, as one table: a line a workload, a column a peer.

    table.py FILE.tsv ...                          the rows where a peer is ahead, then the table
    table.py --keep KEPT.tsv FILE.tsv ...          also writes medians and quartiles, to compare with later
    table.py --against KEPT.tsv FILE.tsv ...       names the rows that are slower than in KEPT, and ends with 1 if any is

A value of the table is the median of the rounds. Behind it stands how many times better Millpond is (higher is better
for pairs a second, lower for all else; footprints are not divided). A machine has fast and slow hours, so a row is
compared with KEPT as a ratio to CUDA's value of the same run, where CUDA has the row. It is slower if its quartiles lie
beyond those of KEPT.
"""

import argparse
import statistics
import sys
from collections import namedtuple

OURS, CUDA = "millpond", "cuda"

Cell = namedtuple("Cell", "low median high")


def cell_of(values):
    """The median and the quartiles of the rounds.

    >>> cell_of([3.0])
    Cell(low=3.0, median=3.0, high=3.0)
    >>> cell_of([4.0, 1.0, 2.0, 3.0, 5.0])
    Cell(low=2.0, median=3.0, high=4.0)
    """
    if len(values) == 1:
        return Cell(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Cell(low, median, high)


def is_higher_better(unit):
    return unit == "Mpairs/s"


def read(paths):
    """Returns the rows of some files, `{workload: {peer: [value of each round]}}`, and the unit of each workload."""
    rows, units = {}, {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                words = line.rstrip("\n").split("\t")
                if len(words) == 4:
                    work, peer, value, unit = words
                    rows.setdefault(work, {}).setdefault(peer, []).append(float(value))
                    units[work] = unit
    return {work: {peer: cell_of(values) for peer, values in peers.items()} for work, peers in rows.items()}, units


def read_kept(path):
    rows = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.rstrip("\n").split("\t")
            if not line.startswith("#") and len(words) == 6:
                work, peer, _, low, median, high = words
                rows.setdefault(work, {})[peer] = Cell(float(low), float(median), float(high))
    return rows


def keep(path, rows, units):
    with open(path, "w", encoding="utf-8") as file:
        file.write("# workload, peer, unit, lower quartile, median, upper quartile\n")
        for work, peers in rows.items():
            for peer, cell in peers.items():
                file.write("\t".join([work, peer, units[work], *(f"{value:.6g}" for value in cell)]) + "\n")


def times_better(ours, theirs, unit):
    """How many times better a value is than a peer's.

    >>> times_better(20.0, 400.0, "ns"), times_better(20.0, 400.0, "Mpairs/s")
    (20.0, 0.05)
    """
    return ours / theirs if is_higher_better(unit) else theirs / ours


def behind(rows, units):
    """Yields the rows where a peer is better, with the best peer and how many times better Millpond is.

    >>> rows = {"pair": {"millpond": cell_of([20.0]), "cuda": cell_of([400.0])},
    ...         "launch": {"millpond": cell_of([2.0]), "cuda": cell_of([1.0]), "torch": cell_of([4.0])}}
    >>> list(behind(rows, {"pair": "ns", "launch": "us"}))
    [('launch', 'cuda', 0.5)]
    """
    for work, peers in rows.items():
        unit = units[work]
        others = {peer: cell for peer, cell in peers.items() if peer != OURS}
        if OURS not in peers or not others:
            continue
        better = {peer: times_better(peers[OURS].median, cell.median, unit) for peer, cell in others.items()}
        best = min(better, key=better.get)
        if better[best] < 1:
            yield work, best, better[best]


def slowness(peers, unit):
    """How slow a row is: the quartiles of Millpond's values as a ratio to CUDA's median, or as they are without CUDA. The
    larger, the slower.

    >>> slowness({"millpond": Cell(1.0, 2.0, 3.0), "cuda": Cell(1.0, 4.0, 9.0)}, "us")
    Cell(low=0.25, median=0.5, high=0.75)
    >>> slowness({"millpond": Cell(2.0, 4.0, 8.0), "cuda": Cell(1.0, 2.0, 3.0)}, "Mpairs/s")
    Cell(low=0.25, median=0.5, high=1.0)
    """
    ours = peers[OURS]
    by = peers[CUDA].median if CUDA in peers and unit != "ratio" else 1.0
    if is_higher_better(unit):
        return Cell(by / ours.high, by / ours.median, by / ours.low)
    return Cell(ours.low / by, ours.median / by, ours.high / by)


def slower(rows, units, kept):
    """Yields the rows that became slower by more than the spread: with how many times, by the medians.

    >>> kept = {"launch": {"millpond": Cell(1.0, 1.1, 1.2), "cuda": Cell(2.0, 2.0, 2.0)}}
    >>> now = lambda low, median, high, cuda: {"launch": {"millpond": Cell(low, median, high), "cuda": cell_of([cuda])}}
    >>> list(slower(now(1.15, 1.3, 1.4, 2.0), {"launch": "us"}, kept))
    []
    >>> list(slower(now(1.5, 1.65, 1.8, 2.0), {"launch": "us"}, kept))
    [('launch', 1.5)]
    >>> list(slower(now(2.0, 2.2, 2.4, 4.0), {"launch": "us"}, kept))  # A slow hour of the machine.
    []
    """
    for work, peers in rows.items():
        before = kept.get(work, {})
        # Without CUDA on one side the two are not in one unit.
        if OURS not in peers or OURS not in before or (CUDA in peers) != (CUDA in before):
            continue
        now, then = slowness(peers, units[work]), slowness(before, units[work])
        if now.low > then.high:
            yield work, round(now.median / then.median, 3)


def shown(peers, peer, unit):
    cell = peers.get(peer)
    if cell is None:
        return ""
    text = f"{cell.median:.3f}" if unit in ("ratio", "us", "Mpairs/s") else f"{cell.median:.0f}"
    ours = peers.get(OURS)
    if peer == OURS:
        spread = 100 * (cell.high - cell.low) / cell.median if cell.median else 0
        return text if cell.low == cell.high else f"{text} +-{spread / 2:.0f}%"
    if not ours or not ours.median or unit == "ratio":
        return text
    return f"{text} ({times_better(ours.median, cell.median, unit):.2f}x)"


def main():
    options = argparse.ArgumentParser(description="Rows of a benchmark as a table.")
    options.add_argument("--keep", metavar="KEPT.tsv")
    options.add_argument("--against", metavar="KEPT.tsv")
    options.add_argument("files", nargs="+", metavar="FILE.tsv")
    options = options.parse_args()
    rows, units = read(options.files)
    if not rows:
        sys.exit("table.py: no rows in these files")
    if options.keep:
        keep(options.keep, rows, units)
    if options.against:
        found = list(slower(rows, units, read_kept(options.against)))
        for work, times in found:
            print(f"slower than before: {work}: {times:.2f} times")
        sys.exit(1 if found else 0)

    print("behind a peer (how many times better Millpond is):")
    for work, peer, times in sorted(behind(rows, units), key=lambda it: it[2]):
        print(f"  {times:.2f}  {work}: {peer}")
    peers = sorted({peer for cells in rows.values() for peer in cells}, key=lambda peer: (peer != OURS, peer))
    width = max(len(work) for work in rows) + 1
    print("workload".ljust(width), "unit".ljust(9), *(peer.rjust(18) for peer in peers))
    for work, cells in rows.items():
        print(work.ljust(width), units[work].ljust(9), *(shown(cells, peer, units[work]).rjust(18) for peer in peers))


if __name__ == "__main__":
    main()
