"""Which runs the claims need: variants of LDC and of what it is compared with, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from fscil_bench.backbones import feature_dim
from fscil_bench.episode_store import Design
from fscil_bench.params import parse_params
from fscil_bench.protocol import Protocol
from fscil_bench.registry import Registry

from ._ablation import ablation_variants
from ._variants import Variant, settings

SEEDS = tuple(range(10))
LOSSES = ("kl", "emd", "js", "hellinger")
COVARIANCES = ("mapped", "empirical")
BUDGET_MODES = ("full", "low_rank")
FEW_SHOTS = (1, 5)
FACT = "fact"


@dataclass(frozen=True)
class ClaimsParams:
    """Parameters of the report.

    Attributes:
        ldc_set: `name=value,name=value`: parameters of LDC in all its runs.
        free_lunch_set: the same for Free-Lunch.
        outlier: the fraction of a class, farthest from its mean, that outlier shots come from.
        unseen: new classes of the one session that mapped and empirical covariance are compared in.
        steps: recurrent steps over which the KL must not rise.
        episodes: few-shot episodes, of 5 ways.
        queries: queries of each class in an episode.
    """

    ldc_set: str = ""
    free_lunch_set: str = ""
    outlier: Annotated[float, Field(gt=0, le=1)] = 0.2
    unseen: Annotated[int, Field(ge=1)] = 20
    steps: Annotated[int, Field(ge=1)] = 3
    episodes: Annotated[int, Field(ge=1)] = 600
    queries: Annotated[int, Field(ge=1)] = 15


@dataclass(frozen=True)
class Setup:
    """The variants on one protocol."""

    protocol: Protocol
    registry: Registry
    params: ClaimsParams
    seeds: tuple[int, ...] = SEEDS
    split: str = "seeded"
    representation: str = "cosine"

    def ldc(self, **changes: Any) -> Variant:
        """Return a variant of LDC: fields of `Variant`, and parameters beside `ldc_set`."""
        return self._variant("ldc", self.params.ldc_set, changes)

    def free_lunch(self, **changes: Any) -> Variant:
        """Return a variant of Free-Lunch, likewise."""
        return self._variant("free_lunch", self.params.free_lunch_set, changes)

    def ncm(self, space: str) -> Variant:
        """Return class means in a feature space."""
        return self._variant("ncm", "", {"space": space})

    @cached_property
    def recurrent_steps(self) -> int:
        """R as LDC is set here, at least 1."""
        schema = self.registry.get("method", "ldc").value.Params
        typed = parse_params("ldc_set: method 'ldc'", schema, settings(self.params.ldc_set))
        return max(1, int(typed.recurrent_steps))

    @cached_property
    def ablation(self) -> Mapping[str, Variant]:
        """The rows of the paper's ablation."""
        return ablation_variants(self.ldc, self.recurrent_steps)

    def complete(self, **changes: Any) -> Variant:
        """Return LDC with sampler, mapping and recurrence, and what is changed."""
        parts = {"sampler": "gaussian", "covariance": "mapped"}
        return self.ldc(**{**parts, "recurrent_steps": self.recurrent_steps, **changes})

    def unseen(self, covariance: str) -> Variant:
        """Return the run of one session of unseen classes, with its training curve."""
        way = min(self.params.unseen, self.protocol.classes - self.protocol.base_classes)
        changed = {"way": way, "sessions": 1}
        return self.complete(covariance=covariance, overrides=changed, artifacts=True)

    @property
    def outlier_split(self) -> str:
        """The split of outlier shots."""
        return f"outlier:{self.params.outlier:g}"

    @property
    def dim(self) -> int:
        """D, the number of features."""
        return feature_dim(self.protocol.backbone)

    def budgeted(self, mode: str) -> Variant:
        """Return Free-Lunch within the bytes of LDC's one covariance."""
        return self.free_lunch(byte_budget=4 * self.dim**2, budget_mode=mode)

    @property
    def budget_modes(self) -> tuple[str, ...]:
        """The ways of spending that budget that it has room for."""
        # The diagonals of all base classes alone are C0·D numbers; the budget is D².
        return BUDGET_MODES if self.protocol.base_classes <= self.dim else BUDGET_MODES[:1]

    def few_shot(self, shot: int) -> tuple[Variant, Variant]:
        """Return the episodes of LDC and of Free-Lunch, of one draw."""
        p = self.params
        design = Design(way=5, shot=shot, queries=p.queries, episodes=p.episodes)
        one_draw = {"seeds": self.seeds[:1], "episodes": design}
        return self.ldc(**one_draw), self.free_lunch(**one_draw)

    @cached_property
    def generated(self) -> Mapping[str, Variant]:
        """LDC with its generated features: the shared covariance, the mapping, and recurrence."""
        # Of the first seed alone: those of one run are tens of megabytes.
        each = {"seeds": self.seeds[:1], "artifacts": True, "sampler": "gaussian"}
        return {
            "shared": self.ldc(**each, covariance="shared", recurrent_steps=0),
            "mapped": self.ldc(**each, covariance="mapped", recurrent_steps=0),
            "recurrent": self.ldc(**each, covariance="mapped", recurrent_steps=self.params.steps),
        }

    @cached_property
    def fact(self) -> Variant | None:
        """FACT, once a method or a representation of that name is registered."""
        known = {kind: self.registry.names(kind) for kind in ("method", "representation")}
        brought = FACT if FACT in known["representation"] else self.representation
        if FACT in known["method"]:
            return Variant(FACT, {}, self.seeds, self.split, representation=brought)
        # FACT classifies by class means on the network that it trains.
        means = Variant("ncm", {}, self.seeds, self.split, representation=brought)
        return means if brought == FACT else None

    def variants(self) -> list[Variant]:
        """Return everything that the report needs."""
        rivals = [self.free_lunch(), self.ncm("raw"), self.ncm("tukey")]
        shots = [each(split=s) for s in ("seeded", self.outlier_split) for each in self._pair]
        return [
            *(self.ldc(), *rivals, *self.ablation.values(), *shots),
            *(self.complete(loss=loss) for loss in LOSSES),
            *(self.unseen(covariance) for covariance in COVARIANCES),
            *(self.budgeted(mode) for mode in self.budget_modes),
            *self.generated.values(),
            *([self.fact] if self.fact else []),
            *(each for shot in FEW_SHOTS for each in self.few_shot(shot)),
        ]

    @property
    def _pair(self) -> tuple[Any, Any]:
        return self.ldc, self.free_lunch

    def _variant(self, method: str, fixed: str, changes: Mapping[str, Any]) -> Variant:
        own = ("seeds", "split", "overrides", "artifacts", "episodes")
        fields: dict[str, Any] = {name: v for name, v in changes.items() if name in own}
        fields = {"seeds": self.seeds, "split": self.split, **fields}
        params = {name: value for name, value in changes.items() if name not in own}
        params = {**settings(fixed), **params}
        return Variant(method, params, representation=self.representation, **fields)
