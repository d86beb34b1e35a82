"""What a user asks for, before names and defaults are resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import index
from pathlib import Path
from typing import Annotated, Any, TypeGuard

from pydantic import Field

from fscil_bench.defaults import REPRESENTATION
from fscil_bench.errors import UsageError, shown
from fscil_bench.params import words as split_words

Names = str | Path | Iterable[str | Path]
"""One name, several with commas between, or a list of names; a protocol's may be a path."""
Seeds = int | str | Iterable[int]
"""A seed, several as `0-9` or `0,2,5-7`, or integers."""
MOST_SEEDS = 10_000
"""Seeds that one range may name."""


@dataclass(frozen=True)
class RunRequest:
    """A run as a user asks for it.

    With `pseudo` it is run on the protocol's pseudo-incremental split, on which parameters are
    chosen; `chosen` says how these parameters were, if they were.
    """

    method: str
    protocol: str
    representation: str = REPRESENTATION
    params: Mapping[str, Any] = field(default_factory=dict)
    representation_params: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    representation_seed: int = 0
    split: str | None = None
    index_list: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    views: str = "plain"
    pseudo: bool = False
    chosen: str | None = None


USUAL_QUERIES = 15
"""Queries of each class in the field's episodes."""


@dataclass(frozen=True)
class Design:
    """What an episode is made of: `way` classes, each with `shot` labelled images and `queries`.

    Where no number of queries is given, there are 15, or as many as the class with the fewest test
    images has. `episodes` is how many are drawn. Those of a smaller number are the first of a
    larger one.
    """

    way: Annotated[int, Field(ge=2)] = 5
    shot: Annotated[int, Field(ge=1)] = 5
    queries: Annotated[int, Field(ge=1)] | None = None
    episodes: Annotated[int, Field(ge=1)] = 600

    @property
    def title(self) -> str:
        """The setting as the field names it."""
        return f"{self.way}-way {self.shot}-shot"

    def settled(self, test_images: int | None) -> Design:
        """Return it with a number of queries, if the fewest test images of a class are known."""
        if self.queries is not None or test_images is None:
            return self
        return replace(self, queries=max(1, min(USUAL_QUERIES, test_images)))


@dataclass(frozen=True)
class Wanted:
    """A run that a report needs, as a user would ask for it.

    With `artifacts` the method's named arrays are needed too; with `episodes` few-shot episodes
    are, instead of sessions. `options` are further words of the command that makes it.
    """

    request: RunRequest
    artifacts: bool = False
    episodes: Design | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selection:
    """Which runs a report was asked for; an empty tuple asks for whatever is stored."""

    protocol: str | None = None
    methods: tuple[str, ...] = ()
    representations: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    split: str | None = None


def words(values: Names, argument: str = "names") -> list[str]:
    """Return comma-separated or repeated words, each once, in order; a path is one word.

    Raises:
        UsageError: something else than text or a path; `argument` is where it was given.
    """
    texts = values if several(values) else [values]
    found: list[str] = []
    for text in texts:
        if not isinstance(text, str | Path):
            raise UsageError(f"{argument}: {shown(text)} is no name; give one as text, or a list")
        found += split_words(text) if isinstance(text, str) else [str(text)]
    return list(dict.fromkeys(found))


def several(asked: object) -> TypeGuard[Iterable[Any]]:
    """Return whether something is given as a list or the like of it, and not alone."""
    alone = isinstance(asked, str | bytes | Mapping) or getattr(asked, "ndim", 1) == 0
    return isinstance(asked, Iterable) and not alone


def parse_seeds(asked: Seeds) -> tuple[int, ...]:
    """Return the seeds of `0`, `0-9`, `0,2,5-7` or of integers, each once, in the order given.

    Raises:
        UsageError: not such a list, or a seed that is negative or too large.
    """
    if isinstance(asked, str):
        return tuple(
            dict.fromkeys(seed for part in asked.split(",") for seed in _range(asked, part))
        )
    return tuple(dict.fromkeys(map(_seed, asked if several(asked) else [asked])))


def _seed(asked: Any) -> int:
    try:
        seed = -1 if isinstance(asked, bool) else index(asked)
    except TypeError:
        seed = -1
    if not 0 <= seed < 2**63:
        raise UsageError(f"seed {shown(asked)}: a seed is a whole number from 0 on")
    return seed


def seeds_text(seeds: Sequence[int]) -> str:
    """Return seeds as --seeds takes them: `0-9`, or `0,2,5-7`."""
    ordered = enumerate(sorted(set(seeds)))
    parts = []
    for _, group in groupby(ordered, key=lambda pair: pair[1] - pair[0]):
        run = [seed for _, seed in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(parts)


def _range(asked: str, part: str) -> range:
    first, dash, last = part.strip().partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise UsageError(f"seeds {asked!r}: {part!r} is neither a number nor a range like 0-9")
    if max(len(first), len(last)) > 18:
        raise UsageError(f"seeds: {part[:20]!r}... is too large")
    low, high = int(first), int(last or first)
    if high < low:
        raise UsageError(f"seeds {asked!r}: the range {part!r} runs backwards")
    if high - low >= MOST_SEEDS:
        raise UsageError(f"seeds {asked!r}: {part!r} is more than {MOST_SEEDS}")
    return range(low, high + 1)
