"""Importing the package and asking for help must stay cheap."""

from __future__ import annotations

import pydoc
import subprocess
import sys

import fscil_bench


def test_neither_the_package_nor_help_imports_torch() -> None:
    code = (
        "import sys, fscil_bench\n"
        "from typer.testing import CliRunner\n"
        "from fscil_bench.cli.app import app\n"
        "result = CliRunner().invoke(app, ['run', '--help'])\n"
        "assert result.exit_code == 0, result.output\n"
        "assert not {'torch', 'pandas', 'matplotlib'} & set(sys.modules), 'a heavy import'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_dir_and_help_show_the_interface() -> None:
    names = {"run", "run_episodes", "tune", "check", "make_report", "load_runs", "load_episodes"}
    assert names <= set(dir(fscil_bench))
    shown = pydoc.plain(pydoc.render_doc(fscil_bench))
    for name in names:
        assert callable(getattr(fscil_bench, name))
        assert f"\n    {name}(" in shown
