"""Stored work whose arrays can be read, and what is wrong with the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from fscil_bench.errors import StoreError

Made = TypeVar("Made")


def readable(made: Iterable[Made], read: Callable[[Made], object]) -> tuple[list[Made], list[str]]:
    """Return what `read` can read, and for everything else in words why it is left out."""
    good: list[Made] = []
    problems: list[str] = []
    for each in made:
        try:
            read(each)
        except StoreError as error:
            problems.append(f"left out: {error}")
            continue
        good.append(each)
    return good, problems
