"""Runs `programs.py` plainly and under `millpond check`, `record` and `run`, and prints a table: is the output the same,
the status, what was found, how long it took beside the plain run.

run.py [NAME ...]     all programs, or these
run.py found          the wrong orders of `found.py`, and their twins

Needs a GPU, PyTorch and the command (MILLPOND, or target/release/millpond).
Environment: JOBS (programs at a time; times are rough above 1), OUT (a folder for logs), MODES.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
MILLPOND = os.environ.get("MILLPOND") or HERE.parents[2] / "target/release/millpond"
OUT = pathlib.Path(os.environ.get("OUT", "out"))
MODES = os.environ.get("MODES", "plain check record run").split()
# So that every tensor is an allocation of the driver.
ASYNC = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync", "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}
# These need an allocator that the asynchronous one does not stand in for: PyTorch's own, or Millpond's. Said, because the
# command asks for the asynchronous one where nothing is said.
NATIVE = {"PYTORCH_CUDA_ALLOC_CONF": "backend:native", "PYTORCH_ALLOC_CONF": "backend:native"}
OWN_ALLOCATOR = {"llama", "reduce_overhead", "captured"}
# This chooses its allocator itself, which PyTorch refuses where the environment names any.
CHOOSES = {"torch_millpond"}
COMMAND = {
    "plain": [],
    "check": [MILLPOND, "check", "--"],
    "record": [MILLPOND, "record", "-o", "TRACE", "--"],
    "run": [MILLPOND, "run", "--report", "--"],
}


def names():
    text = (HERE / "programs.py").read_text()
    return re.findall(r"^@program\ndef (\w+)", text, re.M)


def run(name, mode):
    logs = OUT / name
    logs.mkdir(parents=True, exist_ok=True)
    command = [str(word).replace("TRACE", str(logs / "trace")) for word in COMMAND[mode]]
    environment = {**os.environ, **(NATIVE if name in OWN_ALLOCATOR else ASYNC)}
    if name in CHOOSES:
        command[2:2] = ["--keep-allocator"] if command else []
        environment = dict(os.environ)
    start = time.monotonic()
    try:
        done = subprocess.run(
            [*command, sys.executable, str(HERE / "programs.py"), name],
            env=environment, capture_output=True, text=True, timeout=float(os.environ.get("LIMIT", "120")),
        )
        status, out, said = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        status, out, said = "timeout", (late.stdout or b"").decode(), (late.stderr or b"").decode()
    took = time.monotonic() - start
    (logs / f"{mode}.txt").write_text(f"{out}\n--- standard error, status {status}\n{said}")
    step = re.search(r"^step ([\d.]+)$", out, re.M)
    return {
        "status": status, "out": re.sub(r"^step .*$", "", out, flags=re.M), "took": took,
        "step": float(step[1]) if step else None, "found": sorted(set(re.findall(r"error\[([\w-]+)\]", said))),
        "count": len(re.findall(r"error\[[\w-]+\]", said)),
    }


def row(name):
    lines, plain = [], run(name, "plain")
    if plain["status"] != 0:
        last = (OUT / name / "plain.txt").read_text().strip().splitlines()[-1]
        return False, [f"{name:16} plain    status {plain['status']}: not judged: {last[:120]}"]
    right = True
    for mode in MODES:
        it = plain if mode == "plain" else run(name, mode)
        same = it["out"] == plain["out"] and it["status"] == plain["status"]
        right &= same and not it["found"]
        ratio = f"{it['step'] / plain['step']:.2f}" if it["step"] and plain["step"] else "-"
        what = "same" if same else f"OTHER (status {it['status']})"
        found = f"  found {it['count']}: {', '.join(it['found'])}" if it["found"] else ""
        step = f"{it['step']:.2f}" if it["step"] else "-"
        lines.append(f"{name:16} {mode:8} {what:18} step {step:>9} ms ({ratio:>5})  process {it['took']:6.1f} s{found}")
    return right, lines


def found(name):
    """A wrong order that was found in somebody's program, and its twin."""
    lines, right = [], True
    for word in ("wrong", "right"):
        command = [str(MILLPOND), "check", "--", sys.executable, str(HERE / "found.py"), name, word]
        done = subprocess.run(command, env={**os.environ, **ASYNC}, capture_output=True, text=True, timeout=120)
        (OUT / f"found-{name}-{word}.txt").write_text(done.stdout + done.stderr)
        kinds = sorted(set(re.findall(r"error\[([\w-]+)\]", done.stderr)))
        right &= bool(kinds) == (word == "wrong") and done.returncode == int(word == "wrong")
        lines.append(f"{name:26} {word:6} status {done.returncode}  {', '.join(kinds) or 'no finding'}")
    return right, lines


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    if sys.argv[1:] == ["found"]:
        rows = [found(name) for name in re.findall(r"^def (\w+)", (HERE / "found.py").read_text(), re.M)]
        for _, lines in rows:
            print(*lines, sep="\n")
        sys.exit(not all(right for right, _ in rows))
    chosen = sys.argv[1:] or names()
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "1"))) as pool:
        rows = list(pool.map(row, chosen))
    for _, lines in rows:
        print(*lines, sep="\n")
    wrong = [name for name, (right, _) in zip(chosen, rows) if not right]
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} as they should be" + (f"; not: {', '.join(wrong)}" if wrong else ""))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
