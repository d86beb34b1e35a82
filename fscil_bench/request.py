"""What a user asks for, before names and defaults are resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field


@dataclass(frozen=True)
class RunRequest:
    """A run as a user asks for it.

    With `pseudo` it is run on the protocol's pseudo-incremental split, on which parameters are
    chosen; `chosen` says how these parameters were, if they were.
    """

    method: str
    protocol: str
    representation: str = "cosine"
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


@dataclass(frozen=True)
class Design:
    """What an episode is made of: `way` classes, each with `shot` labelled images and `queries`.

    `episodes` is how many are drawn. Those of a smaller number are the first of a larger one.
    """

    way: Annotated[int, Field(ge=2)] = 5
    shot: Annotated[int, Field(ge=1)] = 5
    queries: Annotated[int, Field(ge=1)] = 15
    episodes: Annotated[int, Field(ge=1)] = 600

    @property
    def title(self) -> str:
        """The setting as the field names it."""
        return f"{self.way}-way {self.shot}-shot"


@dataclass(frozen=True)
class Wanted:
    """A run that a report needs, as a user would ask for it.

    With `artifacts` the method's named arrays are needed too; with `episodes` few-shot episodes
    are, instead of sessions.
    """

    request: RunRequest
    artifacts: bool = False
    episodes: Design | None = None


@dataclass(frozen=True)
class Selection:
    """Which runs a report was asked for; an empty tuple asks for whatever is stored."""

    protocol: str | None = None
    methods: tuple[str, ...] = ()
    representations: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    split: str | None = None
