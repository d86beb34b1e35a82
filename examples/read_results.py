"""What is stored in `results/`, as pandas frames, and a figure drawn from them with seaborn."""

import sys

import matplotlib

matplotlib.use("Agg")  # no display is needed

import seaborn as sns

import fscil_bench as fb


def main() -> None:
    """Print means and a paired difference of each protocol, and draw curves."""
    folder = sys.argv[1] if len(sys.argv) > 1 else "results"
    runs = fb.load_runs(folder, by="run")  # a row a run, every measure in its unit
    rows = runs.groupby(["protocol", "method"])[["last", "average", "last_harmonic"]]
    print(rows.agg(lambda own: f"{own.to_numpy().mean():.2f}"))  # as the tables print it
    for protocol, part in runs.groupby("protocol"):
        # Columns are paired by the draw of the shots.
        wide = part.pivot_table(index="seed", columns="method", values="last")
        for other in wide.columns.drop("ncm", errors="ignore"):
            gain = (wide[other] - wide["ncm"]).dropna()
            print(f"{protocol}: {other} − ncm = {gain.mean():.2f} points over {len(gain)} draws")
    sessions = fb.load_runs(folder)  # a row a run and session, accuracies as fractions
    grid = sns.relplot(
        sessions, kind="line", x="session", y="accuracy", hue="method", col="protocol"
    )
    grid.savefig("curves.png")
    print("curves.png")


if __name__ == "__main__":
    main()
