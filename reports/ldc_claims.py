"""The LDC paper's claims, one by one: what it prints, what was measured, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from fscil_bench.errors import FscilError
from fscil_bench.plugins.registry import Registry
from fscil_bench.report import Report, ReportInput, ReportOutput
from fscil_bench.request import Selection, Wanted
from fscil_bench.running.commands import wanted_commands
from fscil_bench.store.files import write_text

from ._ablation import ablation_table
from ._claims import Claim
from ._claims_accuracy import (
    aims,
    fact_claim,
    few_shot_claim,
    first_session_claim,
    loss_claim,
    outlier_claim,
    recurrent_claim,
    sampler_claim,
)
from ._claims_cost import memory_claim, scalability_claim, time_claim
from ._claims_distribution import KlStudy
from ._claims_mapping import mapping_claim
from ._claims_setup import ClaimsParams, Setup
from ._claims_tables import claims_csv, published_figures
from ._claims_text import Findings, latex, markdown
from ._shelf import Shelf
from ._tables import csv_table
from ._terms import remedy, terms_of
from ._variants import wanted_runs


class LdcClaims(Report):
    """One row a claim of the LDC paper: its figure, ours, the rule, the verdict."""

    name = "ldc-claims"
    title = "Which of the LDC paper's claims hold"
    Params = ClaimsParams

    params: ClaimsParams

    def requests(self, selection: Selection, registry: Registry) -> Sequence[Wanted]:
        """Return the runs of every variant that a claim compares, and the few-shot episodes.

        Raises:
            UsageError: no protocol was named, or something that the claims leave no choice of.
        """
        setup = self._setup(selection, registry)
        return list(wanted_runs(setup.variants(), setup.protocol, registry).values())

    def build(self, given: ReportInput) -> ReportOutput:
        """Write ldc-claims.md / .csv / .tex, and what the tables of ablation and KL show.

        Raises:
            UsageError: no protocol was named, or something that the claims leave no choice of.
            FscilError: none of the runs is stored.
        """
        setup = self._setup(given.selection, given.registry)
        shelf = Shelf(given, setup.protocol, setup.variants())
        if shelf.empty:
            raise FscilError(
                f"none of the runs that {self.name} compares is stored for protocol "
                f"{setup.protocol.name!r}; make them: {remedy(self.name, setup)}"
            )
        study = KlStudy(setup, shelf, given)
        claims, wishes = _claims(setup, shelf, study), aims(setup, shelf)
        found = Findings(
            setup, claims, wishes, ablation_table(shelf, setup.ablation), study.table(), shelf
        )
        missing = wanted_commands(shelf.missing, given.registry)
        text = markdown(found, missing, remedy(self.name, setup))
        contents = {
            f"{self.name}.md": text,
            f"{self.name}.csv": claims_csv([*wishes, *claims], published_figures(), setup.protocol),
            f"{self.name}.tex": latex(found),
        }
        for stem, (columns, rows) in (("ablation", found.ablation), ("kl", found.divergences)):
            if rows:
                contents[f"{stem}.csv"] = csv_table(columns, rows)
        files = tuple(given.folder / name for name in contents)
        for path, content in zip(files, contents.values(), strict=True):
            write_text(path, content)
        return ReportOutput(text, files, tuple(missing), tuple(shelf.problems))

    def _setup(self, selection: Selection, registry: Registry) -> Setup:
        return terms_of(Setup, self, selection, registry)


def _claims(setup: Setup, shelf: Shelf, study: KlStudy) -> list[Claim]:
    return [
        sampler_claim(setup, shelf),
        recurrent_claim(setup, shelf),
        loss_claim(setup, shelf),
        mapping_claim(setup, shelf),
        outlier_claim(setup, shelf),
        scalability_claim(setup, shelf),
        memory_claim(setup, shelf),
        time_claim(setup, shelf),
        few_shot_claim(setup, shelf),
        study.claim(),
        first_session_claim(setup, shelf),
        fact_claim(setup, shelf),
    ]
