"""`python -m millpond` runs the command `millpond` that was installed with this package."""

import os
import pathlib
import sys
import sysconfig


def _command():
    """Returns the command from the folders where pip installs them: of the environment, of the user, of `--target`."""
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    folders.append(pathlib.Path(__file__).resolve().parent.parent / "bin")
    return next((path for path in (pathlib.Path(folder, "millpond") for folder in folders) if path.is_file()), None)


def main():
    command = _command()
    if command is None:
        raise SystemExit("the command millpond is not installed with this package: `pip install millpond` installs both")
    os.execv(command, ["millpond", *sys.argv[1:]])


if __name__ == "__main__":
    main()
