"""A report of your own: what accuracy costs in stored bytes.

`python custom_report.py drawn.toml` draws it from what the other examples have stored; on the
command line it is `fscil-bench report memory --plugin custom_report.py --protocol glyphs`.
"""

import sys

import fscil_bench as fb
from fscil_bench.report import Document, Figure, Notes, Report, Table
from fscil_bench.reporting.choice import meant_rows
from fscil_bench.reporting.facts import note_lines
from fscil_bench.reporting.figures import new_figure
from fscil_bench.reporting.statistics import aggregate
from fscil_bench.reporting.tables import ROW_COLUMNS, measure_columns


class Memory(Report):
    """Accuracy after the last session against the bytes that a method keeps for it."""

    name = "memory"
    title = "What accuracy costs in stored bytes"

    def build(self, frame, params):
        """Return a table of rows, and a figure with a point for each."""
        rows = meant_rows(self.results, self.name, rows="", every=False)
        found = aggregate(rows.frame, "label", ["last", "bytes"])

        def draw():
            figure = new_figure(height=2.5)
            axes = figure.subplots()
            axes.set(xscale="log", xlabel="Bytes stored", ylabel="Last session (%)")
            axes.errorbar(
                found["bytes_mean"], found["last_mean"], found["last_half_width"], fmt="o"
            )
            for label, *point in found[["bytes_mean", "last_mean"]].itertuples():
                axes.annotate(label, point, xytext=(4, 4), textcoords="offset points", fontsize=7)
            return figure

        columns = [*ROW_COLUMNS, *measure_columns("last", "bytes")]
        table = Table("memory", found, columns, caption="Accuracy in %, and what is stored for it.")
        figure = Figure("points", draw, found, caption="Each row with its 95 % interval.")
        return Document(self.title, [table, figure, Notes(note_lines(rows))])


def main() -> None:
    """Draw the report."""
    protocol = sys.argv[1] if len(sys.argv) > 1 else "glyphs"
    output = fb.make_report("memory", protocol, plugins=[__file__])
    print(output.text, *output.files, sep="\n")


if __name__ == "__main__":
    main()
