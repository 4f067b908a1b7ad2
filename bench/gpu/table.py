"""Rows of `workload peer value unit`, as one table: a line a workload, a column a peer, and how many times better
Millpond is (higher is better for pairs a second, lower for all else; footprints are not divided)."""

import sys

rows, peers, units = {}, [], {}
for path in sys.argv[1:]:
    for line in open(path, encoding="utf-8"):
        words = line.rstrip("\n").split("\t")
        if len(words) != 4:
            continue
        work, peer, value, unit = words
        rows.setdefault(work, {})[peer] = float(value)
        units[work] = unit
        if peer not in peers:
            peers.append(peer)
peers.sort(key=lambda peer: (peer != "millpond", peer))


def cell(work, peer):
    value = rows[work].get(peer)
    if value is None:
        return ""
    ours = rows[work].get("millpond")
    text = f"{value:.3f}" if units[work] in ("ratio", "us", "Mpairs/s") else f"{value:.0f}"
    if peer == "millpond" or not ours or units[work] == "ratio":
        return text
    times = ours / value if units[work] == "Mpairs/s" else value / ours
    return f"{text} ({times:.2f}x)"


width = max(len(work) for work in rows) + 1
print("workload".ljust(width), "unit".ljust(9), *(peer.rjust(18) for peer in peers))
for work in rows:
    print(work.ljust(width), units[work].ljust(9), *(cell(work, peer).rjust(18) for peer in peers))
