"""The claims report as Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fscil_bench.store.runs import StoredRun

from ._claims import Claim
from ._claims_setup import Setup
from ._claims_tables import (
    AIM_HEADINGS,
    HEADINGS,
    aim_cells,
    claim_cells,
    latex_texts,
    markdown_texts,
    published_figures,
)
from ._costs import class_bytes, fixed_bytes
from ._facts import human_bytes, note_lines
from ._latex import escape_latex, latex_table
from ._rows import Row
from ._shelf import Shelf
from ._tables import Column, TableRow, escape_markdown, markdown_table

RULE = (
    "Rules, fixed in code. A figure is a mean of paired differences with "
    "its 95 % Student-t interval over the pairs, mean ± t·s/√n. Unless a claim's own rule says "
    "otherwise it holds if the lower bound is above 0, does not hold if the upper bound is at or "
    "below 0, and cannot be told between; then t·s/√n is also the smallest difference that these "
    "runs could have shown, the mean whose interval just ends at 0. A claim of several parts holds "
    "if all hold, and does not if one does not. Fewer than three pairs tell nothing."
)
ORIGIN = (
    "LDC is a reconstruction here. Published figures stand in a column of their own, each with its "
    "data set, and are compared with nothing; a verdict is about the data, backbone and recipe of "
    "this report alone."
)
AIMS = (
    "Last session: accuracy after it. Average: the mean over all sessions. Harmonic mean: of base "
    "and new accuracy in the last session. In %, paired by seed; the better of ncm is raw or Tukey "
    "space, whichever has the higher mean, figure by figure."
)
ABLATION = (
    "Accuracy in each session in %, ± the half-width of the 95 % Student-t interval over n seeds. "
    'The paper\'s "Gaussian sampler" is the row "+ mapping"; "+ sampler" has the shared covariance.'
)
KL = (
    "KL(generated‖real) in nats between one-dimensional Gaussians, averaged over the axes and as "
    "many random directions, ± over classes, of one run each. Sets of half the test images of a "
    "class are compared, and the floor is one half of the real ones against the other, so that "
    "both are too large by about as much."
)

Table = tuple[list[Column], list[TableRow]]


@dataclass(frozen=True)
class Findings:
    """What the report found, and the runs that it was drawn from."""

    setup: Setup
    claims: Sequence[Claim]
    aims: Sequence[Claim]
    ablation: Table
    divergences: Table
    shelf: Shelf


def markdown(found: Findings, missing: Sequence[str], remedy: str) -> str:
    """Return the report; `missing` are the commands that make what it lacks, `remedy` makes all."""
    protocol = found.setup.protocol
    parts = [
        f"# Claims of the LDC paper on {escape_markdown(protocol.title)} "
        f"({escape_markdown(protocol.name)})",
        escape_markdown(ORIGIN),
        markdown_texts(HEADINGS, claim_cells(found.claims, published_figures())),
        escape_markdown(RULE),
        "\n".join(f"- ({c.letter}) {escape_markdown(c.rule)}" for c in found.claims),
        "## What LDC is asked for here",
        markdown_texts(AIM_HEADINGS, aim_cells(found.aims)),
        escape_markdown(AIMS),
        "\n".join(f"- {escape_markdown(line)}" for line in memory_lines(found)),
        *_table("## Ablation", ABLATION, found.ablation),
        *_table("## Generated against real features", KL, found.divergences),
        "## Terms",
        "\n".join(f"- {escape_markdown(note)}" for note in notes(found)),
    ]
    if missing:
        lines = [f"Missing; all of it is made by `{remedy}`, or one by one:", ""]
        parts.append("\n".join([*lines, *(f"- `{command}`" for command in missing)]))
    return "\n\n".join(part for part in parts if part) + "\n"


def latex(found: Findings) -> str:
    """Return the tables one after the other, each with its notes."""
    claims = claim_cells(found.claims, published_figures())
    rules = [f"({claim.letter}) {claim.rule}" for claim in found.claims]
    parts = [
        latex_texts(HEADINGS, (0.05, 0.2, 0.22, 0.35, 0.1), claims),
        _paragraphs([ORIGIN, RULE, *rules]),
        latex_texts(AIM_HEADINGS, (0.12, 0.2, 0.5, 0.1), aim_cells(found.aims)),
        _paragraphs([AIMS, *memory_lines(found)]),
    ]
    for note, (columns, rows) in ((ABLATION, found.ablation), (KL, found.divergences)):
        if rows:
            parts.append(latex_table(columns, rows, [escape_latex(note)]))
    return "\n\\par\\medskip\n".join([*parts, _paragraphs(notes(found))])


def memory_lines(found: Findings) -> list[str]:
    """Return what the compared methods store, in bytes measured on their states."""
    setup = found.setup
    variants = {"ldc": setup.ldc(), "free_lunch": setup.free_lunch(), "ncm": setup.ncm("raw")}
    for mode in setup.budget_modes:
        variants[f"free_lunch with LDC's covariance bytes ({mode})"] = setup.budgeted(mode)
    stored = {name: list(found.shelf.runs(variant).values()) for name, variant in variants.items()}
    return [_memory_line(name, runs[0]) for name, runs in stored.items() if runs]


def _memory_line(name: str, run: StoredRun) -> str:
    first, last = run.record.sessions[0], run.record.sessions[-1]
    line = f"{name} stores {human_bytes(first.state_bytes)} after the base session"
    if last.index == 0:
        return f"{line}."
    line += f" and {human_bytes(last.state_bytes)} after the last, "
    line += f"{class_bytes(run)[-1]:,g} bytes for each new class"
    if name == "ldc":
        line += f"; {human_bytes(fixed_bytes(run))} of it (covariance, unit) do not grow"
    return f"{line}."


def notes(found: Findings) -> list[str]:
    """Return the terms on which the compared methods were run, and what was left out."""
    setup, shelf = found.setup, found.shelf
    variants = {"ldc": setup.ldc(), "free_lunch": setup.free_lunch()}
    variants |= {f"ncm (space={space})": setup.ncm(space) for space in ("raw", "tukey")}
    runs = {name: tuple(shelf.runs(variant).values()) for name, variant in variants.items()}
    rows = [Row(own, name) for name, own in runs.items() if own]
    lines = note_lines(rows, setup.registry) if rows else []
    lines += [f"ldc runs with {setup.params.ldc_set}."] if setup.params.ldc_set else []
    if setup.params.free_lunch_set:
        lines.append(f"free_lunch runs with {setup.params.free_lunch_set}.")
    if shelf.older:
        lines.append(
            f"{shelf.older} stored runs were left out, made with earlier code, other data or "
            "another network than the newest."
        )
    sources = {each.source for own in published_figures().values() for each in own}
    return [*lines, f"Published figures: {'; '.join(sorted(sources))}."]


def _table(heading: str, note: str, table: Table) -> list[str]:
    columns, rows = table
    if not rows:
        return []
    return [heading, markdown_table(columns, rows).rstrip(), escape_markdown(note)]


def _paragraphs(notes: Sequence[str]) -> str:
    # Unlike a box, a group can go on over the end of a page.
    body = " \\par\n".join(escape_latex(note) for note in notes)
    return f"{{\\footnotesize\\raggedright\\noindent\n{body}\\par}}\n"
