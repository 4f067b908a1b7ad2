"""The findings of this process, when `millpond check -- PROGRAM` runs it.

The library that the command preloads appends a line for each finding to a file of this process.
"""

import json
import os

#: The variables that the command sets for the preloaded library.
MODE, FOLDER = "MILLPOND_INTERPOSE", "MILLPOND_INTERPOSE_REPORT"
#: The variable by which the command names its list of delays to that library.
SHAKE = "MILLPOND_INTERPOSE_SHAKE"


def is_checked():
    """Returns True if this process runs under ``millpond check``."""
    return os.environ.get(MODE) == "check" and FOLDER in os.environ


def is_shaken():
    """Returns True if this process runs under ``millpond shake``."""
    return SHAKE in os.environ


class Findings:
    """The findings that came since the last look."""

    def __init__(self):
        # A test may clear the environment.
        self._folder = os.environ[FOLDER]
        # By file: the bytes that were read, and the findings by number.
        self._seen, self._known = {}, {}

    def new(self):
        """Returns the new findings of this process, as in the JSON of ``millpond check``."""
        # After a fork this is another file.
        path = os.path.join(self._folder, str(os.getpid()))
        try:
            with open(path, "rb") as file:
                file.seek(self._seen.get(path, 0))
                text = file.read()
        except OSError:
            return []
        # Another thread may be writing the last line.
        lines = text[: text.rfind(b"\n") + 1]
        self._seen[path] = self._seen.get(path, 0) + len(lines)
        known, new = self._known.setdefault(path, {}), []
        for line in lines.decode("utf-8", "replace").split("\n"):
            word, *fields = line.split("\t", 3)
            if word == "finding":
                known[fields[1]] = json.loads(fields[2])
            if word in ("finding", "again"):
                new.append(known[fields[1]])
        return new


def _place(side):
    line = "" if side["line"] is None else f":{side['line']}"
    function = f" ({side['function']})" if side.get("function") else ""
    kernel = f", kernel {side['kernel']}" if side.get("kernel") else ""
    return f"{side['file'] or ''}{line}{function}{kernel}"


def shown(found):
    """Returns a finding as text: the rule, both lines, notes and help."""
    lines = [f"error[{found['kind']}]: {found['sentence']}"]
    for side in filter(None, [found["earlier"], *found["others"], found["later"]]):
        op = "" if side["op"] is None else f", op {side['op']}"
        lines.append(f"  {side['verb']:<10} {side['who'] + op:<23} {_place(side)}".rstrip())
        lines += [f"    at {frame}" for frame in side.get("stack", [])]
    lines += [f"  = note: {note}" for note in found["notes"]]
    lines += [f"  = help: {help}" for help in (found["help"], found.get("calls")) if help]
    return "\n".join(lines)


def all_shown(findings):
    """Returns findings as text. The same one is shown once, with its count."""
    counts = {}
    for text in map(shown, findings):
        counts[text] = counts.get(text, 0) + 1
    return "\n".join(text if count == 1 else f"{text}\n  = note: {count} times" for text, count in counts.items())
