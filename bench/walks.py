"""Steps through the calls of the example `walks`, for bench/walks: run by gdb, with `program` and `keep` set."""

import re
import subprocess

import gdb

WALKS = ["hit", "free", "miss", "cross", "graph", "export"]
STEPS_MAX = 250_000


def plain(name):
    """A function's own name: no path, no instance, no hash."""
    name, depth, out = re.sub(r"::h[0-9a-f]{16}$", "", name), 0, ""
    for c in name:
        depth += c == "<"
        out += c if depth == 0 else ""
        depth -= c == ">"
    return out.split("::")[-1]


def functions(frame):
    """The functions of ours that a frame is in: itself, and those that are inlined around it."""
    while frame is not None:
        place = frame.find_sal().symtab
        name = plain(frame.name() or "")
        ours = place and "crates/" in place.filename and "/stdarch/" not in place.filename
        if ours and name and "closure" not in name:
            yield place.filename.split("crates/")[-1], name
        frame = frame.older() if frame.type() == gdb.INLINE_FRAME else None


def walk():
    """From the breakpoint on to the return of its function."""
    frame = gdb.newest_frame()
    while frame.type() == gdb.INLINE_FRAME:
        frame = frame.older()
    caller, found = frame.older().read_register("rsp"), set()
    for _ in range(STEPS_MAX):
        gdb.execute("step", to_string=True)
        if gdb.newest_frame().read_register("rsp") >= caller:
            break
        found.update(functions(gdb.newest_frame()))
    return sorted(it for it in found if "/examples/" not in it[0])


for setting in ("pagination off", "confirm off"):
    gdb.execute("set " + setting)
for path in ("/rustc/*", "*.cargo/registry*", "*library/*"):
    gdb.execute("skip -gfi " + path, to_string=True)
gdb.execute("file " + program)  # noqa: F821
symbols = [line.split() for line in subprocess.run(["nm", program], capture_output=True, text=True).stdout.splitlines()]  # noqa: F821
for name in WALKS:
    gdb.Breakpoint(next(it[2] for it in symbols if len(it) > 2 and "walk_" + name in it[2] and it[1] in "tT"))
gdb.execute("run > /dev/null")
gdb.execute("set scheduler-locking step")
for name in WALKS:
    found = walk()
    print(f"{name}\t{len(found)}", flush=True)
    with open(f"{keep}/{name}.names", "w") as file:  # noqa: F821
        file.writelines(f"{path} {function}\n" for path, function in found)
    gdb.execute("continue", to_string=True)
