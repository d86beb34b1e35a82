"""The LDC paper's claims, one by one: what it prints, what was measured, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fscil_bench.report import Column, Notes, Part, Section, Table
from fscil_bench.reporting.facts import human_bytes
from fscil_bench.reporting.sentences import RULE

from ..ablation import ablation_tables
from ..shelf import Shelf
from ..study import Findings, Study
from ..variants import Variant
from .accuracy import (
    aims,
    fact_claim,
    few_shot_claim,
    mapping_claim,
    outlier_claim,
    part_claims,
)
from .claim import Claim
from .cost import memory_claim, scalability_claim, time_claim
from .divergence import divergence_claim, divergence_table, divergences
from .setup import ClaimsParams, Setup

PUBLISHED = Path(__file__).with_name("ldc_claims.csv")
CLAIMS = (
    Column("claim", "Claim", kind="text", width=0.05),
    Column("statement", "What the paper says", kind="text", width=0.2),
    Column("published", "Published figure", kind="text", width=0.22),
    Column("measured", "Measured", kind="text", width=0.35),
    Column("verdict", "Verdict", kind="text", width=0.1, bold=True),
)
AIMS = (
    Column("claim", "LDC minus", kind="text", width=0.12),
    Column("statement", "Figure", kind="text", width=0.2),
    Column("measured", "Measured", kind="text", width=0.5),
    Column("verdict", "Above 0", kind="text", width=0.1, bold=True),
)
ORIGIN = (
    "LDC is a reconstruction here. Published figures stand in a column of their own, each with its "
    "data set, and are compared with nothing; a verdict is about the data, backbone and recipe of "
    "this report alone."
)
RULED = (
    "Rules, fixed in code. Unless a claim's own says otherwise it holds if the lower bound of its "
    "figure's interval is above 0, does not hold if the upper bound is at or below 0, and cannot "
    "be told between. A claim of several parts holds if all hold, and does not if one does not."
)
AIMED = (
    "Last session: accuracy after it. Average: the mean over all sessions. Harmonic mean: of base "
    "and new accuracy in the last session. In %, paired by seed; the better of ncm is raw or Tukey "
    "space, whichever has the higher mean, figure by figure."
)


class LdcClaims(Study):
    """One row a claim of the LDC paper: its figure, ours, the rule, the verdict."""

    name = "ldc-claims"
    title = "Which of the LDC paper's claims hold"
    Params = ClaimsParams
    terms = Setup
    rules = (RULE,)

    def variants(self, terms: Setup) -> dict[int, Variant]:
        """Return every variant that a claim compares, and the few-shot episodes."""
        return dict(enumerate(terms.variants()))

    def findings(self, terms: Setup, shelf: Shelf) -> Findings:
        """Return claims and aims with their verdicts, and the tables of ablation and KL."""
        apart = divergences(terms, shelf)
        judges = (
            *(mapping_claim, outlier_claim, scalability_claim, memory_claim, time_claim),
            *(few_shot_claim, fact_claim),
        )
        claims = [*part_claims(terms, shelf), *(judge(terms, shelf) for judge in judges)]
        claims.append(divergence_claim(terms, shelf, apart))
        claims.sort(key=lambda claim: claim.letter)
        wishes = aims(terms, shelf)
        ablation = {name: shelf.runs(variant) for name, variant in terms.ablation.items()}
        compared = {"ldc": terms.ldc(), "free_lunch": terms.free_lunch()}
        compared |= {f"ncm (space={space})": terms.ncm(space) for space in ("raw", "tukey")}
        parts: list[Part] = [
            ORIGIN,
            Table("claims", _printed(claims), CLAIMS),
            RULED,
            Notes([f"({claim.letter}) {claim.rule}" for claim in claims]),
            Table(self.name, _in_full([*wishes, *claims], terms), printed=False),
            Section(
                "What LDC is asked for here",
                [Table("aims", _printed(wishes), AIMS), AIMED, Notes(_memory(terms, shelf))],
            ),
            Section("Ablation", ablation_tables(shelf, ablation)),
            Section("Generated against real features", [divergence_table(terms, apart)]),
        ]
        rows = {name: shelf.runs(variant) for name, variant in compared.items()}
        sources = "; ".join(sorted(set(published()["source"])))
        return Findings(parts, rows, [f"Published figures: {sources}."])


def published() -> pd.DataFrame:
    """Return what the paper prints, a row a figure: `claim`, `figure`, `data`, `source`, `text`."""
    found = pd.read_csv(PUBLISHED, dtype=str, keep_default_na=False)
    data = found["data"].where(found["data"] == "", found["data"] + ": ")
    return found.assign(text=data + found["figure"])


def _printed(claims: Sequence[Claim]) -> pd.DataFrame:
    texts = published().groupby("claim")["text"].agg("; ".join)
    return pd.DataFrame(
        [
            {
                "claim": f"({claim.letter})" if claim.letter in texts else claim.letter,
                "statement": claim.statement,
                "published": texts.get(claim.letter, "–"),
                "measured": claim.measured,
                "verdict": claim.verdict,
            }
            for claim in claims
        ]
    )


def _in_full(claims: Sequence[Claim], terms: Setup) -> pd.DataFrame:
    """Return one line for each part of each claim."""
    printed = published().groupby("claim")
    texts = printed["text"].agg("; ".join)
    sources = printed["source"].agg(lambda each: "; ".join(each.unique()))
    return pd.DataFrame(
        [
            {
                "claim": claim.letter,
                "statement": claim.statement,
                "published": texts.get(claim.letter, ""),
                "source": sources.get(claim.letter, ""),
                "protocol": terms.protocol.name,
                "part": part.name,
                "unit": part.unit if part.interval.count else "",
                "mean": part.interval.mean,
                "low": part.interval.low,
                "high": part.interval.high,
                "n": part.interval.count,
                "pairs": claim.pairs if part.interval.count else "",
                "smallest_difference": part.smallest,
                "detail": part.detail,
                "rule": claim.rule,
                "part_verdict": part.verdict,
                "verdict": claim.verdict,
            }
            for claim in claims
            for part in claim.parts
        ]
    )


def _memory(terms: Setup, shelf: Shelf) -> list[str]:
    """Return what the compared methods store, in bytes measured on their states."""
    variants = {"ldc": terms.ldc(), "free_lunch": terms.free_lunch(), "ncm": terms.ncm("raw")}
    for mode in terms.budget_modes:
        variants[f"free_lunch with LDC's covariance bytes ({mode})"] = terms.budgeted(mode)
    lines = []
    for name, own in ((name, shelf.runs(variant)) for name, variant in variants.items()):
        for run in own.head(1).to_dict("records"):
            line = f"{name} stores {human_bytes(int(run['state_0']))} after the base session"
            if terms.protocol.sessions:
                line += f" and {human_bytes(int(run['bytes']))} after the last, "
                line += f"{run['class_bytes']:,g} bytes for each new class"
            if name == "ldc" and terms.protocol.sessions:
                fixed = human_bytes(int(run["fixed_bytes"]))
                line += f"; {fixed} of it (covariance, unit) do not grow"
            lines.append(f"{line}.")
    return lines
