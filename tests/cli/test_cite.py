from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from fscil_bench.cli.app import app
from fscil_bench.plugins.registry import load_registry

KEYS = ("liu2022ldc", "yang2021freelunch", "zhang2021cec", "zhou2022fact", "wang2023teen")


def cite(*words: str) -> str:
    done = CliRunner().invoke(app, ["cite", *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_every_method_has_a_title_and_a_paper_that_is_cited_once() -> None:
    registry, output = load_registry(), cite()

    methods = [registry.get("method", name) for name in registry.names("method")]
    assert all(method.citation and method.title != method.name for method in methods)
    assert len({method.title for method in methods}) == len(methods)
    assert all(output.count(f"{{{key},") == 1 for key in KEYS)
    assert output.startswith("@misc{fscilbench,")
    assert output.count("{") == output.count("}")


def test_named_methods_and_representations_are_cited() -> None:
    output = cite("ldc", "fact")

    assert [line for line in output.splitlines() if line.startswith("@")] == [
        "@misc{fscilbench,",
        "@inproceedings{zhou2022fact,",
        "@misc{liu2022ldc,",
    ]
    assert "eprint = {2210.00232}" in output


def test_a_plug_in_brings_its_own(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from fscil_bench.methods.ncm import NCM\n\n\nclass Mine(NCM):\n"
        '    name = "mine"\n    bibtex = """\n        @misc{me2025,\n          year = {2025}\n'
        '        }"""\n'
    )

    assert "\n@misc{me2025,\n  year = {2025}\n}\n" in cite("mine", "--plugin", str(plugin))


def test_an_unknown_name_is_answered() -> None:
    done = CliRunner().invoke(app, ["cite", "lcd"])

    assert done.exit_code != 0
    assert (
        "unknown method or representation 'lcd'; did you mean 'ldc'"
        in str(done.exception) + done.output
    )
