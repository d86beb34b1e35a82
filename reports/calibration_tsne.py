"""Real and generated features before and after each recurrent step, in one embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import Report, ReportInput, ReportOutput
from fscil_bench.request import Selection, Wanted
from fscil_bench.running.commands import wanted_commands
from fscil_bench.store.files import write_text
from fscil_bench.store.runs import StoredRun

from ._calibration import Calibration, measured, panel_titles
from ._calibration_text import class_names, csv, latex, markdown
from ._embedding import Embedding, embedded
from ._embedding_figure import embedding_figure, embedding_lines
from ._figures import figure_style, save_figure
from ._selected import files_folder
from ._shelf import Shelf
from ._variants import Variant, settings, wanted_runs

METHOD = "ldc"


class CalibrationTsne(Report):
    """t-SNE of real and generated features, step by step, with the KL of each step.

    Draws one run of LDC that was made with its generated features (`--run-missing` makes it).
    """

    name = "calibration-tsne"
    title = "Real and generated features before and after each recurrent step (t-SNE), with KL"

    @dataclass(frozen=True)
    class Params:
        """Parameters of the report.

        Attributes:
            steps: recurrent steps of the run.
            ldc_set: `name=value,name=value`: other parameters of LDC.
            base: how many base classes, spread evenly over all.
            new: how many later classes, likewise.
            classes: these classes instead, by id or name, with `,` between.
            session: after which session; negative numbers count from the last, −1.
            images: real features of a class, and generated ones of a step, at most.
            perplexity: of t-SNE; lowered where there are too few samples for it.
            tsne_seed: of t-SNE.
        """

        steps: Annotated[int, Field(ge=0)] = 3
        ldc_set: str = ""
        base: Annotated[int, Field(ge=0)] = 3
        new: Annotated[int, Field(ge=0)] = 3
        classes: str = ""
        session: int = -1
        images: Annotated[int, Field(ge=4)] = 25
        perplexity: Annotated[float, Field(ge=1)] = 30.0
        tsne_seed: Annotated[int, Field(ge=0)] = 0

    params: Params

    def requests(self, selection: Selection, registry: Registry) -> Sequence[Wanted]:
        """Return the one run that is drawn, with its generated features.

        Raises:
            UsageError: no protocol was named, or something that the report leaves no choice of.
        """
        protocol, variant = self._asked(selection, registry)
        return list(wanted_runs([variant], protocol, registry).values())

    def build(self, given: ReportInput) -> ReportOutput:
        """Write calibration-tsne.md / .csv / .tex and tsne.png / .pdf / .csv.

        Raises:
            UsageError: no protocol was named, or a session or class that is not there.
            FscilError: the run, its generated features or its images' features are not there.
        """
        protocol, variant = self._asked(given.selection, given.registry)
        run, problems = self._run(given, protocol, variant)
        found = measured(run, self.params, given)
        p = self.params
        points = embedded(found.shown, p.images, p.perplexity, p.tsne_seed)
        folder = files_folder(given, p)
        text = markdown(found, points, given.registry)
        contents = {"md": text, "csv": csv(found), "tex": latex(found, points, given.registry)}
        files = {folder / f"{self.name}.{kind}": value for kind, value in contents.items()}
        for path, content in files.items():
            write_text(path, content)
        drawn = _draw(found, points, folder)
        return ReportOutput(text, (*files, *drawn), warnings=tuple(problems))

    def _run(
        self, given: ReportInput, protocol: Protocol, variant: Variant
    ) -> tuple[StoredRun, list[str]]:
        shelf = Shelf(given, protocol, [variant])
        for run in shelf.runs(variant).values():
            return run, shelf.problems
        (command,) = wanted_commands(shelf.missing, given.registry)
        raise FscilError(
            "\n".join(
                [
                    f"the run that {self.name} draws is not stored with its generated features; "
                    f"--run-missing makes it, or: {command}",
                    *shelf.problems,
                ]
            )
        )

    def _asked(self, selection: Selection, registry: Registry) -> tuple[Protocol, Variant]:
        if selection.protocol is None:
            raise UsageError(f"{self.name} draws one protocol: name it with --protocol")
        if selection.methods not in ((), (METHOD,)):
            raise UsageError(f"{self.name} draws {METHOD}: leave --method away")
        if max(len(selection.representations), len(selection.seeds)) > 1:
            raise UsageError(
                f"{self.name} draws one run: name at most one --representation and one --seed"
            )
        protocol, _ = registry.protocol(selection.protocol)
        brought = next(iter(selection.representations), "cosine")
        registry.get("representation", brought)
        params = {**settings(self.params.ldc_set), "recurrent_steps": self.params.steps}
        split, seeds = selection.split or protocol.split, selection.seeds or (0,)
        return protocol, Variant(
            METHOD, params, seeds, split, representation=brought, artifacts=True
        )


def _draw(found: Calibration, points: Embedding, folder: Path) -> tuple[Path, ...]:
    names = class_names(found)
    with figure_style():
        figure = embedding_figure(points, names, panel_titles(found))
        return save_figure(figure, folder, "tsne", embedding_lines(points, names))
