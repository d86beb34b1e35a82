"""The published lists of shots, rebuilt from the table of numbers that the project carries."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

TABLE = Path(__file__).with_name("splits.csv")

Shot = tuple[str, int]
"""A class as the table names it, and the number of one of its images."""

Paths = Mapping[Shot, str]
"""What the data set itself knows: where a shot's file lies."""


def published_shots(protocol: str, table: Path = TABLE) -> dict[int, list[Shot]]:
    """Return a protocol's shots by few-shot session (from 1), in published order."""
    sessions: dict[int, list[Shot]] = {}
    with table.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["protocol"] == protocol:
                shots = [(row["class"], int(sample)) for sample in row["samples"].split()]
                sessions.setdefault(int(row["session"]), []).extend(shots)
    return sessions


def rebuilt_lists(protocol: str, paths: Paths | None = None) -> dict[str, str]:
    """Return a protocol's few-shot lists as they are published, by file name.

    Args:
        protocol: `cifar100`, `mini_imagenet` or `cub200`.
        paths: for `cub200`, where each shot lies below `CUB_200_2011/images`, as the data set's
            own `images.txt` says; the other two need none.
    """
    line = _LINES[protocol]
    return {
        f"session_{session + 1}.txt": "".join(f"{line(shot, paths or {})}\n" for shot in shots)
        for session, shots in published_shots(protocol).items()
    }


def _index(shot: Shot, _: Paths) -> str:
    return str(shot[1])


def _mini_imagenet(shot: Shot, _: Paths) -> str:
    wnid, number = shot
    return f"MINI-ImageNet/train/{wnid}/{wnid}{number:08d}.jpg"


def _cub200(shot: Shot, paths: Paths) -> str:
    return f"CUB_200_2011/images/{paths[shot]}"


_LINES: Mapping[str, Callable[[Shot, Paths], str]] = {
    "cifar100": _index,
    "mini_imagenet": _mini_imagenet,
    "cub200": _cub200,
}
