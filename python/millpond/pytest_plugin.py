"""``pytest --millpond``: checks the order of the CUDA calls of a test session, and fails the test that made a finding.
``pytest --millpond-shake=20``: runs the session with delays in its streams, by 20 seeds.

The session is started again under ``millpond check`` or ``millpond shake``. So each process of it has the preloaded
library, also the workers of pytest-xdist.
"""

import os
import sys

import pytest

from . import _command, _findings


def pytest_addoption(parser):
    group = parser.getgroup("millpond", "order of CUDA calls (Millpond)")
    group.addoption("--millpond", action="store_true", help="run under `millpond check`; a finding fails its test")
    group.addoption(
        "--millpond-shake",
        metavar="SEEDS",
        help="run under `millpond shake`: once as it is, then with delays in its streams by so many seeds (20, or 5..9)",
    )
    group.addoption(
        "--millpond-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="an option of `millpond check` or `shake`, as in --millpond-option=--suppressions=known.txt",
    )


def _again():
    """Returns the command line of this process: the interpreter, and what it runs."""
    if hasattr(sys, "orig_argv"):
        return [sys.executable, *sys.orig_argv[1:]]
    is_module = os.path.basename(sys.argv[0]) == "__main__.py"
    return [sys.executable, *(["-m", "pytest"] if is_module else sys.argv[:1]), *sys.argv[1:]]


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    seeds = config.getoption("--millpond-shake")
    if config.option.help:
        return
    if not (config.getoption("--millpond") or seeds):
        if config.getoption("--millpond-option"):
            raise pytest.UsageError("--millpond-option needs --millpond or --millpond-shake")
        return
    if seeds and config.getoption("--millpond"):
        raise pytest.UsageError("--millpond and --millpond-shake are two runs: give one of them")
    if seeds and _findings.is_shaken():
        # The session's own status judges.
        return
    if not seeds and _findings.is_checked():
        config.pluginmanager.register(_Check(), "millpond-check")
        return
    option, command = ("--millpond-shake", "shake") if seeds else ("--millpond", "check")
    if list(config.invocation_params.args) != sys.argv[1:]:
        raise pytest.UsageError(f"{option} is for the command line; run the program by `millpond {command} -- PROGRAM`")
    if _command.path() is None:
        raise pytest.UsageError(f"{option}: the command millpond is not installed with this package, nor in PATH")
    words = [f"--seeds={seeds}"] if seeds else []
    _command.become([command, *words, *config.getoption("--millpond-option"), "--", *_again()])


class _Check:
    """The hooks of a session that is checked."""

    def __init__(self):
        self._findings = _findings.Findings()

    def pytest_runtest_logstart(self):
        # What was found outside of tests is in the summary of `millpond check`.
        self._findings.new()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self):
        report = (yield).get_result()
        found = self._findings.new()
        if not found:
            return
        text = _findings.all_shown(found)
        if report.passed:
            report.outcome, report.longrepr = "failed", text
        else:
            report.sections.append(("millpond", text))
