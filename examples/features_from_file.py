"""Features that other code has computed: write them to a file, cut them into sessions, run methods.

Here they are drawn: 20 classes in 32 dimensions, 40 training and 20 test samples each. Nothing is
trained and no image is read.
"""

from pathlib import Path

import numpy as np

import fscil_bench as fb

CLASSES, DIMENSIONS = 20, 32
PROTOCOL = """\
name = "drawn"
title = "Drawn features"
features = "drawn.npz"
classes = 20
base_classes = 12
way = 2
shot = 5
sessions = 4
"""


def main() -> None:
    """Write `drawn.npz` and `drawn.toml` here, and run three methods on five draws of the shots."""
    random = np.random.default_rng(0)
    means = random.gamma(1.0, size=(CLASSES, DIMENSIONS))
    arrays = {}
    for half, count in (("train", 40), ("test", 20)):
        labels = np.repeat(np.arange(CLASSES), count)
        noise = random.normal(size=(len(labels), DIMENSIONS))
        arrays[f"{half}_labels"] = labels
        arrays[f"{half}_features"] = np.abs(means[labels] + 2.5 * noise).astype(np.float32)
    np.savez("drawn.npz", **arrays)
    Path("drawn.toml").write_text(PROTOCOL, encoding="utf-8")
    runs = fb.run(["ncm", "teen", "mahalanobis"], "drawn.toml", seed="0-4")
    for run in runs:
        accuracies = " ".join(f"{100 * accuracy:.1f}" for accuracy in run.accuracies)
        print(f"{run.spec.method}, seed {run.spec.seed}: {accuracies}")
    print(fb.make_report("main-table", "drawn.toml").text)


if __name__ == "__main__":
    main()
