#!/usr/bin/env python3
"""Runs the programs of races.cu and races.py, plain, with a delay where it matters, and under `millpond check`, and prints
a table (README.md says what its columns are).

run.py [NAME ...]     all programs, or these

Needs a GPU, nvcc, PyTorch for races.py, and the command (MILLPOND, or target/release/millpond).
Environment: JOBS (programs at a time), ROUNDS (plain), DELAYED (rounds with a delay), DELAY (milliseconds), LIMIT (seconds
that a program may take), OUT (a folder for what was built, and logs). What has a log in OUT is not run again.
"""

import concurrent.futures
import datetime
import itertools
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
MILLPOND = os.environ.get("MILLPOND") or str(HERE.parents[2] / "target/release/millpond")
OUT = pathlib.Path(os.environ.get("OUT", "out")).resolve()
CORES = len(os.sched_getaffinity(0))
JOBS = int(os.environ.get("JOBS", min(CORES, 12)))
ROUNDS, DELAYED = os.environ.get("ROUNDS", "50"), os.environ.get("DELAYED", "5")
DELAY, LIMIT = os.environ.get("DELAY", "40"), float(os.environ.get("LIMIT", "300"))
SEEDS = os.environ.get("SEEDS", "0..20")
CHECKS = {"check": [MILLPOND, "check", "--"], "races": [MILLPOND, "check", "--races", "--"],
          "shake": [MILLPOND, "shake", "--seeds", SEEDS, "--"]}
# A graph of PyTorch needs PyTorch's own allocator; else the command asks for the asynchronous one, and sees each tensor.
NATIVE = {"PYTORCH_CUDA_ALLOC_CONF": "backend:native", "PYTORCH_ALLOC_CONF": "backend:native"}
KINDS = {"K": "two streams, live memory", "H": "host and pending copy", "L": "lifetime", "G": "graph launched again",
         "D": "default stream", "P": "programmatic launch", "S": "promised by nobody"}


def programs():
    """Each as its command, name, class, link and delayed operation."""
    binary = OUT / "races"
    subprocess.run(["nvcc", "-g", "-std=c++17", "-arch=native", "-o", binary, HERE / "races.cu"], check=True)
    for command in [str(binary)], [sys.executable, str(HERE / "races.py")]:
        listed = subprocess.run([*command, "list"], capture_output=True, text=True)
        if listed.returncode:
            print(f"# skipped: {pathlib.Path(command[-1]).name}: {listed.stderr.strip().splitlines()[-1]}")
            continue
        for line in listed.stdout.splitlines():
            yield command, *line.split("\t")


def run(mode, program, variant, *options):
    """Status, standard output and standard error of one run."""
    command, name, kind = program[:3]
    log = OUT / f"{name}.{'cu' if len(command) == 1 else 'py'}-{mode}-{variant}.txt"
    if log.exists():
        out, status, said = re.fullmatch(r"(.*)\n--- standard error, status (\S+)\n(.*)", log.read_text(), re.S).groups()
        return int(status) if status.isdigit() else status, out, said
    environment = {**os.environ, **NATIVE} if kind == "G" else os.environ
    try:
        done = subprocess.run([*CHECKS.get(mode, []), *command, name, variant, *options], env=environment,
                              capture_output=True, text=True, timeout=LIMIT)
        status, out, said = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        status, out, said = "timeout", (late.stdout or b"").decode(), (late.stderr or b"").decode()
    log.write_text(f"{out}\n--- standard error, status {status}\n{said}")
    return status, out, said


def failures(mode, program, variant, *options):
    """How many rounds were wrong, or what went wrong with the run."""
    status, out, _ = run(mode, program, variant, *options)
    counted = re.search(r"^(\d+) of \d+ wrong$", out, re.M)
    return int(counted[1]) if counted and status == int(counted[1] != "0") else f"status {status}"


def findings(mode, program, variant):
    """The kinds of what was found, or what went wrong with the run. Its result may be wrong, which is no finding."""
    status, out, said = run(mode, program, variant)
    if status not in (0, 1) or not re.search(r"^\d+ of 1 wrong$", out, re.M):
        return f"status {status}"
    return ",".join(sorted(set(re.findall(r"error\[([\w-]+)\]", said)))) or "-"


def late_line(program):
    """The file and the line of the operation behind `late(...)`, as `races.cu:17`; None if nothing has to be late."""
    command, name = program[:2]
    path = HERE / ("races.cu" if len(command) == 1 else "races.py")
    lines = path.read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if re.match(rf"(RACE\({name},|def {name}\()", line))
    rest = enumerate(lines[start + 1:], start + 2)
    own = list(itertools.takewhile(lambda it: not re.match(r"RACE\(|@race|def |}$", it[1]), rest))
    late = next((at for at, (_, line) in enumerate(own) if re.search(r"\blate\(", line)), len(own))
    after = [number for number, line in own[late + 1:] if line.strip() not in ("", "}")]
    return f"{path.name}:{after[0]}" if after else None


def shaken(program, variant):
    """Whether `millpond shake` made the program fail, and whether it is narrowed to the operation that `late` delays."""
    status, _, said = run("shake", program, variant)
    if status not in (0, 1):
        # A program that is wrong by itself cannot be shaken.
        return "wrong plain" if "without delays" in said and status == 2 else f"status {status}"
    if status == 0:
        return "-"
    seed = re.search(r"seed (\d+): .*FAILED", said)
    narrowed = re.search(r"narrowed in .*?\n(.*?)\nmillpond:", said, re.S)
    places = re.findall(r"([\w.]+:\d+) ", narrowed[1]) if narrowed else []
    edge = "edge" if "nothing orders" in said else "no edge"
    return f"seed {seed and seed[1]}, {'it' if places == [late_line(program)] else 'other'}, {edge}"


COLUMNS = {
    "plain": lambda it: failures("plain", it, "wrong", "--rounds", ROUNDS),
    "delayed": lambda it: failures("delayed", it, "wrong", "--rounds", DELAYED, "--delay", DELAY),
    "right": lambda it: failures("delayed", it, "right", "--rounds", DELAYED, "--delay", DELAY),
    "check": lambda it: findings("check", it, "wrong"),
    "check, right": lambda it: findings("check", it, "right"),
    "races": lambda it: findings("races", it, "wrong"),
    "races, right": lambda it: findings("races", it, "right"),
    "shake": lambda it: shaken(it, "wrong"),
    "shake, right": lambda it: shaken(it, "right"),
}


def verdict(kind, delayed, row):
    """What is not as it should be."""
    wrong = [] if row["right"] == 0 else [f"right: {row['right']}"]
    wrong += [f"{column}: {row[column]}" for column in ("check, right", "shake, right") if row[column] != "-"]
    wrong += [f"{column}: {row[column]}" for column in row if str(row[column]).startswith("status")]
    if kind != "S" and row["delayed"] != int(DELAYED):
        wrong.append("delayed: not always wrong")
    return wrong


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    all_programs = [it for it in programs() if not sys.argv[1:] or it[1] in sys.argv[1:]]
    gpu = subprocess.check_output(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], text=True)
    print(f"# {gpu.splitlines()[0]}, {CORES} cores, {datetime.date.today()}")
    print(f"# bench/gpu/races/run.py; of {ROUNDS} plain and {DELAYED} delayed rounds ({DELAY} ms), how many were wrong; README.md has the columns")
    rows = [dict() for _ in all_programs]
    # By column: the GPU is shared in turns by what runs at once, so runs of one kind disturb each other least.
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for column, measure in COLUMNS.items():
            for row, cell in zip(rows, pool.map(measure, all_programs)):
                row[column] = cell
    print(f"{'program':33} class {'plain':>7} {'delayed':>7} {'right':>7}  {'check':22} {'right':8} {'--races':32} {'right':10} {'shake':24} {'right':8} link")
    bad = []
    for (command, name, kind, link, delayed), row in zip(all_programs, rows):
        shown = name + (".cu" if len(command) == 1 else ".py")
        print(f"{shown:33} {kind:5} {row['plain']:>7} {row['delayed']:>7} {row['right']:>7}  {row['check']:22} {row['check, right']:8} "
              f"{row['races']:32} {row['races, right']:10} {row['shake']:24} {row['shake, right']:8} {link}")
        bad += [f"# NOT AS IT SHOULD BE: {shown}: {it}" for it in verdict(kind, delayed, row)]
    for kind, means in KINDS.items():
        of_kind = [row for it, row in zip(all_programs, rows) if it[2] == kind]
        count = {column: sum(row[column] not in (0, "-") for row in of_kind) for column in COLUMNS}
        print(f"# {kind}, {means}: {len(of_kind)}; wrong plain {count['plain']}, delayed {count['delayed']}, right ones {count['right']}; "
              f"found by check {count['check']}, false {count['check, right']}; by --races {count['races']}, false {count['races, right']}; "
              f"by shake {sum('seed' in row['shake'] for row in of_kind)}, narrowed to it {sum(', it' in row['shake'] for row in of_kind)}, "
              f"false {count['shake, right']}")
    print(*bad, f"# {len(all_programs)} programs, {time.monotonic() - start:.0f} s", sep="\n")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
