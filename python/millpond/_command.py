"""The command `millpond`: its path, and a run of the present program under it."""

import os
import pathlib
import shutil
import sys
import sysconfig


def path():
    """Returns the path of the command that was installed with this package, else of the one in PATH, else None."""
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    folders.append(pathlib.Path(__file__).resolve().parent.parent / "bin")
    own = next((path for path in (pathlib.Path(folder, "millpond") for folder in folders) if path.is_file()), None)
    found = own or shutil.which("millpond")
    return str(found) if found else None


def become(words):
    """Replaces this process by the command with arguments.

    Raises:
        SystemExit: the command is not installed.
    """
    command = path()
    if command is None:
        raise SystemExit("the command millpond is not installed with this package: `pip install millpond` installs both")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command, ["millpond", *words])
