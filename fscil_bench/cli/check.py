"""`fscil-bench check`: the conformance suite, on what a plug-in file brings."""

from __future__ import annotations

from fscil_bench.cli.options import command, show
from fscil_bench.errors import FscilError
from fscil_bench.options import Options


@command(only=("plugins",))
def check(options: Options) -> None:
    """Check every method and representation of --plugin files against its contract.

    Each is taken through toy sessions, in seconds. The exit code is 1 if one fails.
    """
    from fscil_bench.testing import check_plugins

    verdicts = check_plugins(options.plugin_files)
    for each in verdicts:
        show(str(each))
    failed = sum(bool(each.problem) for each in verdicts)
    if failed:
        raise FscilError(f"{failed} of {len(verdicts)} plug-ins break their contract")
