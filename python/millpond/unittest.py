"""``python -m millpond.unittest``: as ``python -m unittest``, under ``millpond check``; a finding fails its test."""

import sys
import unittest

from . import _command, _findings


class OrderError(AssertionError):
    """A test made CUDA calls in a wrong order."""


class Result(unittest.TextTestResult):
    """Fails tests that made findings."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._findings = _findings.Findings()

    def startTest(self, test):
        # What was found outside of tests is in the summary of `millpond check`.
        self._findings.new()
        super().startTest(test)

    def addSuccess(self, test):
        found = self._findings.new()
        if not found:
            super().addSuccess(test)
            return
        error = OrderError("\n" + _findings.all_shown(found))
        self.addFailure(test, (OrderError, error, None))

    def stopTest(self, test):
        found = self._findings.new()
        if found:
            self.stream.writeln(_findings.all_shown(found))
        super().stopTest(test)


class Runner(unittest.TextTestRunner):
    resultclass = Result


def main():
    if not _findings.is_checked():
        _command.become(["check", "--", sys.executable, "-m", "millpond.unittest", *sys.argv[1:]])
    unittest.main(module=None, argv=["python -m millpond.unittest", *sys.argv[1:]], testRunner=Runner)


if __name__ == "__main__":
    main()
