"""What is written survives any encoding of its stream."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.cli.app import main
from fscil_bench.cli.options import say, show, survive_encodings


class Streams:
    """Takes the place of stdout and stderr, in an encoding."""

    def __init__(self, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.encoding = encoding
        self.files = {name: io.BytesIO() for name in ("stdout", "stderr")}
        for name, file in self.files.items():
            stream = io.TextIOWrapper(file, encoding, write_through=True, newline="\n")
            monkeypatch.setattr(sys, name, stream)

    def written(self, name: str) -> str:
        return self.files[name].getvalue().decode(self.encoding)


LEGACY = {
    "cp1252": ("-1 – 2 × 3 ± 4 …", "é w ? ?"),
    "cp1251": ("-1 – 2 x 3 ± 4 …", "e w ? ?"),
    "ascii": ("-1 - 2 x 3 +/- 4 ...", "e w ? ?"),
    "utf-8": ("−1 – 2 × 3 ± 4 …", "é ŵ 汉 😀"),
}


@pytest.mark.parametrize("encoding", LEGACY)
def test_what_an_encoding_lacks_is_written_as_something_alike(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = Streams(encoding, monkeypatch)
    survive_encodings()
    show("−1 – 2 × 3 ± 4 …")
    say("é ŵ 汉 😀")
    texts = (streams.written("stdout").rstrip("\n"), streams.written("stderr").rstrip("\n"))
    assert texts == LEGACY[encoding]


@pytest.mark.parametrize("encoding", LEGACY)
def test_a_table_is_written_whole(
    encoding: str, factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        factory.write(factory.spec(seed=seed), [(36 + seed, 0), (34, 6), (30 - seed, 10)])
    words = ["report", "main-table", "--protocol", "toy", "--results", str(factory.store.results)]
    monkeypatch.setattr(sys, "argv", ["fscil-bench", *words])
    streams = Streams(encoding, monkeypatch)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0, streams.written("stderr")
    mark = "+/-" if encoding == "ascii" else "±"
    assert f"| 65.00 {mark} 4.14 |" in streams.written("stdout")


def test_the_module_runs_in_the_c_locale(tmp_path: Path) -> None:
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, "-m", "fscil_bench", "list", "protocols"]
    done = subprocess.run(words, capture_output=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"60 + 8 x 5 classes, 5-shot" in done.stdout
