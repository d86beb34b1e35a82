"""The tables of claims: published figures and measured ones side by side, never mixed."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fscil_bench.protocol import Protocol

from ._claims import Claim, Part, measured_text
from ._latex import escape_latex
from ._paired import high, low
from ._tables import csv_text, escape_markdown

PUBLISHED = Path(__file__).with_name("ldc_claims.csv")
HEADINGS = ("Claim", "What the paper says", "Published figure", "Measured", "Verdict")
AIM_HEADINGS = ("LDC minus", "Figure", "Measured", "Above 0")


@dataclass(frozen=True)
class Published:
    """A figure that the paper prints for a claim: `data` is the data set it is about."""

    figure: str
    data: str
    source: str

    @property
    def text(self) -> str:
        """The figure with its data set."""
        return f"{self.data}: {self.figure}" if self.data else self.figure


def published_figures(path: Path = PUBLISHED) -> dict[str, list[Published]]:
    """Return what the paper prints, by the letter of the claim."""
    found: dict[str, list[Published]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            figure = Published(row["figure"], row["data"], row["source"])
            found.setdefault(row["claim"], []).append(figure)
    return found


def claim_cells(
    claims: Sequence[Claim], published: Mapping[str, Sequence[Published]]
) -> list[tuple[str, ...]]:
    """Return a row of texts for each claim, under `HEADINGS`."""
    return [
        (
            f"({claim.letter})",
            claim.statement,
            "; ".join(each.text for each in published.get(claim.letter, ())) or "–",
            measured_text(claim),
            claim.verdict,
        )
        for claim in claims
    ]


def aim_cells(aims: Sequence[Claim]) -> list[tuple[str, ...]]:
    """Return a row of texts for each aim, under `AIM_HEADINGS`."""
    return [(aim.letter, aim.statement, measured_text(aim), aim.verdict) for aim in aims]


def markdown_texts(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a pipe table of texts, the last column in bold."""
    lines = [_pipes(headings), _pipes(["---"] * len(headings))]
    for row in rows:
        *cells, verdict = (escape_markdown(cell) for cell in row)
        lines.append(_pipes([*cells, f"**{verdict}**"]))
    return "\n".join(lines)


def latex_texts(
    headings: Sequence[str], widths: Sequence[float], rows: Sequence[Sequence[str]]
) -> str:
    r"""Return a booktabs tabular of texts; `widths` are the columns' shares of \linewidth."""
    columns = "".join(rf"p{{{width:g}\linewidth}}" for width in widths)
    # In braces \raggedright leaves the \\ that ends the row alone, which else takes package array.
    cells = [[rf"{{\raggedright {escape_latex(cell)}\par}}" for cell in row] for row in rows]
    body = [" & ".join(row) + r" \\" for row in cells]
    lines = [
        r"% Needs \usepackage{booktabs}.",
        rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"\toprule",
        " & ".join(escape_latex(heading) for heading in headings) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def claims_csv(
    claims: Sequence[Claim], published: Mapping[str, Sequence[Published]], protocol: Protocol
) -> str:
    """Return one line for each part of each claim, numbers in full."""
    lines: list[dict[str, str | int | float]] = []
    for claim in claims:
        printed = published.get(claim.letter, ())
        for part in claim.parts:
            lines.append(
                {
                    "claim": claim.letter,
                    "statement": claim.statement,
                    "published": "; ".join(each.text for each in printed),
                    "source": "; ".join(dict.fromkeys(each.source for each in printed)),
                    "protocol": protocol.name,
                    "part": part.name,
                    **_numbers(part, claim),
                    "detail": part.detail,
                    "rule": claim.rule,
                    "part_verdict": part.verdict,
                    "verdict": claim.verdict,
                }
            )
    return csv_text(lines)


def _numbers(part: Part, claim: Claim) -> dict[str, str | int | float]:
    return {
        "unit": part.unit if part.interval.count else "",
        "mean": part.interval.mean,
        "low": low(part.interval),
        "high": high(part.interval),
        "n": part.interval.count,
        "pairs": claim.pairs if part.interval.count else "",
        "smallest_difference": part.smallest,
    }


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
