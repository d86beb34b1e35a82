"""What a worker keeps between tasks, and when it looks again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.errors import FscilError
from fscil_bench.grids.work import TOPIC, Benches, Heard, Job
from fscil_bench.options import Options
from fscil_bench.request import RunRequest
from fscil_bench.running.workbench import Workbench

METHOD = """\
from fscil_bench.methods.ncm import NCM

class Mine(NCM):
    name = "mine"

    def learn_session(self, session):
        {}
        super().learn_session(session)
"""


def test_an_edited_plug_in_is_loaded_again(new_toy: Any, tmp_path: Path) -> None:
    """Workers of a running scheduler outlive the edits of who uses them."""
    file = tmp_path / "mine.py"
    plugins = (*new_toy.plugins, file)
    options = Options(results=tmp_path / "r", cache=tmp_path / "c", plugins=plugins, threads=1)
    request, worker = RunRequest("mine", new_toy.toml), Benches(tmp_path, Heard(print))

    def job() -> Job:
        key = Workbench.open(options).plan(request).spec.key
        return Job("runs", "a", options, request, key)

    keys = set()
    for body in ("pass", "print(1)"):
        file.write_text(METHOD.format(body))
        asked = job()
        keys.add(asked.expected)
        assert not worker.make(asked, ()).failures
    assert len(keys) == 2, "what the client edited counts"
    with pytest.raises(FscilError, match=r"another key than the client .*, and start them again$"):
        worker.make(replace(asked, expected="0" * 16), ())


def test_a_worker_tells_how_far_it_is_now_and_then() -> None:
    told: list[tuple[str, Any]] = []
    progress = Heard(lambda topic, event: told.append((topic, event)))
    progress.key = "network-a"
    with progress.task("base training (cosine)", 10) as task:
        for epoch in range(3, 6):
            task.update(epoch + 0.5)
    event = {"key": "network-a", "told": "base training (cosine), 3 of 10", "share": 0.35}
    assert told == [(TOPIC, event)], "what follows at once is not told"
