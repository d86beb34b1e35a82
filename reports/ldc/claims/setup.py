"""Which runs the claims need: variants of LDC and of what it is compared with, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field

from fscil_bench.request import Design

from ..ablation import ablation_variants
from ..terms import COVARIANCES, LOSSES, StudyParams, Terms
from ..variants import Variant

FEW_SHOTS = (1, 5)
BASE_ROWS = ("trained", "means")
FACT = "fact"


@dataclass(frozen=True)
class ClaimsParams(StudyParams):
    """Parameters of the report.

    Attributes:
        outlier: the fraction of a class, farthest from its mean, that outlier shots come from.
        unseen: new classes of the one session that mapped and empirical covariance are compared in.
        steps: recurrent steps over which the KL must not rise.
        episodes: few-shot episodes, of 5 ways.
        queries: queries of each class in an episode; by default 15, or as many as each class has.
    """

    outlier: Annotated[float, Field(gt=0, le=1)] = 0.2
    unseen: Annotated[int, Field(ge=1)] = 20
    steps: Annotated[int, Field(ge=1)] = 3
    episodes: Annotated[int, Field(ge=1)] = 600
    queries: Annotated[int, Field(ge=1)] | None = None


@dataclass(frozen=True)
class Setup(Terms[ClaimsParams]):
    """The variants on one protocol."""

    @cached_property
    def ablation(self) -> Mapping[str, Variant]:
        """The rows of the paper's ablation."""
        return ablation_variants(self)

    def unseen(self, covariance: str) -> Variant:
        """Return the run of one session of unseen classes, with its training curve."""
        return self.one_session(covariance, self.params.unseen)

    @property
    def outlier_split(self) -> str:
        """The split of outlier shots."""
        return f"outlier:{self.params.outlier:g}"

    def few_shot(self, shot: int) -> tuple[Variant, Variant]:
        """Return the episodes of LDC and of Free-Lunch, of one draw."""
        p = self.params
        design = Design(way=5, shot=shot, queries=p.queries, episodes=p.episodes)
        design = design.settled(self.test_images)
        one_draw = {"seeds": self.seeds[:1], "episodes": design}
        return self.ldc(**one_draw), self.free_lunch(**one_draw)

    @cached_property
    def generated(self) -> Mapping[str, Variant]:
        """LDC with its generated features: the shared covariance, the mapping, and recurrence."""
        # Of the first seed alone: those of one run are tens of megabytes.
        each = {"seeds": self.seeds[:1], "artifacts": True}
        return {
            "shared": self.complete(**each, covariance="shared", recurrent_steps=0),
            "mapped": self.complete(**each, recurrent_steps=0),
            "recurrent": self.complete(**each, recurrent_steps=self.params.steps),
        }

    def base_rows(self, rows: str) -> Variant:
        """Return LDC with the base classes' rows as they are asked for."""
        return self.complete(base_rows=rows)

    @cached_property
    def fact(self) -> Variant | None:
        """FACT, once a method or a representation of that name is registered."""
        known = {kind: self.registry.names(kind) for kind in ("method", "representation")}
        brought = FACT if FACT in known["representation"] else self.representation
        if FACT not in known["method"] and brought != FACT:
            return None
        # Where it is no method: FACT classifies by class means on the network that it trains.
        method = FACT if FACT in known["method"] else "ncm"
        return Variant(method, {}, self.seeds, self.split, representation=brought)

    def variants(self) -> list[Variant]:
        """Return everything that the report needs."""
        rivals = self.free_lunch(), self.ncm("raw"), self.ncm("tukey")
        splits = "seeded", self.outlier_split
        return [
            *(self.ldc(), *rivals, *self.ablation.values()),
            *(self.ldc(split=split) for split in splits),
            *(self.free_lunch(split=split) for split in splits),
            *(self.complete(loss=loss) for loss in LOSSES),
            *(self.base_rows(rows) for rows in BASE_ROWS),
            *(self.unseen(covariance) for covariance in COVARIANCES),
            *(self.budgeted(mode) for mode in self.budget_modes),
            *self.generated.values(),
            *([self.fact] if self.fact else []),
            *(each for shot in FEW_SHOTS for each in self.few_shot(shot)),
        ]
