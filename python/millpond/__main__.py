"""`python -m millpond` runs the command `millpond` that was installed with this package."""

import sys

from . import _command

if __name__ == "__main__":
    _command.become(sys.argv[1:])
