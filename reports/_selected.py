"""Where the files of a part of a report go, so that the whole one's stay as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fscil_bench.params import params_dict
from fscil_bench.report import ReportInput
from fscil_bench.request import seeds_text
from fscil_bench.spec import digest_of

LONGEST = 100
"""Characters of a folder's name; file systems allow 255 bytes, and paths have a limit too."""


def files_folder(given: ReportInput, params: Any) -> Path:
    """Return the report's folder, or one in it that is named by what was asked for.

    A table of some methods, seeds or rows would otherwise replace the table of all.
    """
    selection = given.selection
    asked: dict[str, str] = {
        "method": ",".join(selection.methods),
        "representation": ",".join(selection.representations),
        "seeds": seeds_text(selection.seeds),
        "split": selection.split or "",
    }
    words = [f"{name}={text}" for name, text in asked.items() if text]
    words += [f"{name}={value}" for name, value in _changed(params).items()]
    return given.folder / _folder_name("_".join(words)) if words else given.folder


def _changed(params: Any) -> Mapping[str, Any]:
    """Return the parameters that are not the report's defaults."""
    usual = params_dict(type(params)())
    return {name: v for name, v in params_dict(params).items() if v != usual[name]}


def _folder_name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9=,._-]", "-", text)
    # Two selections never share a folder, although names are shortened and signs replaced.
    return name if name == text and len(name) <= LONGEST else f"{name[:LONGEST]}-{digest_of(text)}"
