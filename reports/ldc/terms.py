"""The terms on which a study of LDC compares: protocol, seeds, split, and variants of methods."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

from fscil_bench.data.feature_file import read_feature_file
from fscil_bench.errors import UsageError
from fscil_bench.params import params_dict
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.frame import Results
from fscil_bench.request import seeds_text
from fscil_bench.running.commands import plugin_words, protocol_word

from .variants import Variant, settings, typed_params

SEEDS = tuple(range(10))
LOSSES = ("kl", "emd", "js", "hellinger")
COVARIANCES = ("mapped", "empirical")
BUDGET_MODES = ("full", "low_rank")
_FIELDS = ("seeds", "split", "overrides", "artifacts", "episodes")
"""Of a variant, that can be changed; any other name is a parameter."""


@dataclass(frozen=True)
class StudyParams:
    """Parameters of every study.

    Attributes:
        ldc_set: `name=value,name=value`: parameters of LDC in all its runs.
        free_lunch_set: the same for Free-Lunch.
    """

    ldc_set: str = ""
    free_lunch_set: str = ""


Params = TypeVar("Params", bound=StudyParams)


@dataclass(frozen=True)
class Terms(Generic[Params]):
    """What all runs of a study share, and the variants of methods that it compares.

    `test_images` are the fewest of a class, where a stored result knows them.
    """

    protocol: Protocol
    registry: Registry
    params: Params
    seeds: tuple[int, ...] = SEEDS
    split: str = "seeded"
    representation: str = "cosine"
    test_images: int | None = None

    @classmethod
    def asked(cls, report: str, results: Results, params: Params) -> Self:
        """Return the terms that a report was asked for.

        Raises:
            UsageError: no protocol was named, or something that the study leaves no choice of.
        """
        selection, registry = results.selection, results.registry
        if selection.protocol is None:
            raise UsageError(f"{report} is about one protocol: name it, --protocol")
        if selection.methods or len(selection.representations) > 1:
            raise UsageError(
                f"{report} compares the methods that it is about, on one representation: leave "
                "--method away and name at most one --representation"
            )
        protocol, _ = registry.protocol(selection.protocol)
        brought = next(iter(selection.representations), "cosine")
        registry.get("representation", brought)
        seeds, split = selection.seeds or SEEDS, selection.split or "seeded"
        return cls(protocol, registry, params, seeds, split, brought, results.test_images)

    @cached_property
    def seen(self) -> list[int]:
        """How many classes are seen after each session, base session first."""
        return [self.protocol.classes_seen(t) for t in range(self.protocol.sessions + 1)]

    @cached_property
    def dim(self) -> int:
        """D, the number of features."""
        if self.protocol.features:
            folder = self.registry.protocol(self.protocol.name)[1]
            return read_feature_file(folder / self.protocol.features).dim
        return self.registry.backbone(self.protocol.backbone)[0].dim

    @cached_property
    def recurrent_steps(self) -> int:
        """R as LDC is set here, at least 1."""
        given, owner = settings(self.params.ldc_set), "ldc_set: method 'ldc'"
        typed = typed_params("ldc", given, self.protocol, self.registry, owner)
        return max(1, int(typed.recurrent_steps))

    def ldc(self, **changes: Any) -> Variant:
        """Return a variant of LDC: fields of `Variant`, and parameters beside `ldc_set`."""
        return self._variant("ldc", {**settings(self.params.ldc_set), **changes})

    def free_lunch(self, **changes: Any) -> Variant:
        """Return a variant of Free-Lunch, likewise."""
        return self._variant("free_lunch", {**settings(self.params.free_lunch_set), **changes})

    def ncm(self, space: str, **changes: Any) -> Variant:
        """Return class means in a feature space, likewise."""
        return self._variant("ncm", {"space": space, **changes})

    def complete(self, **changes: Any) -> Variant:
        """Return LDC with sampler, mapping, recurrence and rows that are trained, and changes."""
        parts = {"sampler": "gaussian", "covariance": "mapped", "classifier": "trained"}
        return self.ldc(**{**parts, "recurrent_steps": self.recurrent_steps, **changes})

    def closed(self, covariance: str, **changes: Any) -> Variant:
        """Return LDC with its classifier in closed form, and what is changed."""
        parts = {"recurrent_steps": 0, "classifier": "bayes", "base_rows": "means"}
        return self.complete(covariance=covariance, **parts, **changes)

    def one_session(self, covariance: str, classes: int) -> Variant:
        """Return LDC in one session of so many new classes (or all there are), with artifacts."""
        way = min(classes, self.protocol.classes - self.protocol.base_classes)
        changed = {"way": way, "sessions": 1}
        return self.complete(covariance=covariance, overrides=changed, artifacts=True)

    def budgeted(self, mode: str, **changes: Any) -> Variant:
        """Return Free-Lunch within the bytes of LDC's one covariance."""
        return self.free_lunch(byte_budget=4 * self.dim**2, budget_mode=mode, **changes)

    @property
    def budget_modes(self) -> tuple[str, ...]:
        """The ways of spending that budget that it has room for."""
        # The diagonals of all base classes alone are C0·D numbers; the budget is D².
        return BUDGET_MODES if self.protocol.base_classes <= self.dim else BUDGET_MODES[:1]

    def remedy(self, report: str) -> str:
        """Return the command that makes whatever a report lacks, and then the report."""
        words = ["fscil-bench", "report", report]
        words += plugin_words(self.registry, "ldc", self.protocol.dataset, self.representation)
        words += ["--protocol", protocol_word(self.protocol.name, self.registry)]
        if self.representation != "cosine":
            words += ["--representation", self.representation]
        if self.split != "seeded":
            words += ["--split", self.split]
        if self.seeds != SEEDS:
            words += ["--seeds", seeds_text(self.seeds)]
        defaults = params_dict(type(self.params)())
        for key, value in params_dict(self.params).items():
            if value != defaults[key]:
                written = ",".join(map(str, value)) if isinstance(value, tuple | list) else value
                words += ["--set", f"{key}={written}"]
        return shlex.join([*words, "--run-missing"])

    def _variant(self, method: str, changes: dict[str, Any]) -> Variant:
        fields: dict[str, Any] = {"seeds": self.seeds, "split": self.split}
        fields |= {name: value for name, value in changes.items() if name in _FIELDS}
        params = {name: value for name, value in changes.items() if name not in _FIELDS}
        return Variant(method, params, representation=self.representation, **fields)
