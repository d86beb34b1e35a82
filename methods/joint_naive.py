"""Joint training as TOPIC does it: all images, no heed of how few the new classes have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fscil_bench.protocol import Session

from ._joint import JointMethod, JointParams
from ._network_training import shuffled


class JointNaive(JointMethod):
    """Joint-CNN: each session trains on with the base images and all few-shot images so far.

    Tao et al., "Few-Shot Class-Incremental Learning" (TOPIC), CVPR 2020, the baseline Joint-CNN.

    Every image is stored. A session appends rows for its classes and goes on from the last
    session's weights, with plain cross-entropy on the merged set. A base class has a hundred
    times the images of a new one, and nothing counters that, so that new classes are rarely
    predicted: TOPIC's rows (35.60 / 38.90 / 36.80 %) lie below those of nearest class means. It
    is no upper bound; see `joint_balanced`.

    TOPIC trains for 100 / 70 / 50 epochs a session (CUB200 / CIFAR100 / mini-ImageNet) at rate
    0.1, which falls to a tenth at epoch 60 / 45 on the latter two, with a linear classifier; for
    CUB200 its script is not released, and that of Ft-CNN stands in. These are the published
    values. They cost as much as the base training, every session. The defaults are this suite's,
    chosen for cost and not tuned: 2 epochs at 0.01 and 0.005, a tenth of the usual base rate and
    above what it ends with; and the classifier that the representation was trained with, since
    2 epochs do not bring a linear row from zero to the others' length. Batch normalisation is
    trained along, as in TOPIC's code: there are images enough. The last epoch counts, where TOPIC
    chose one on test data.

    It stores network, rows and every image.
    """

    name = "joint_naive"
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {"epochs": 100, "lr": 0.1, "schedule": "constant", "head": "linear"},
        "cifar100": {
            "epochs": 70,
            "lr": 0.1,
            "schedule": "step",
            "milestone": 60,
            "head": "linear",
        },
        "mini_imagenet": {
            "epochs": 50,
            "lr": 0.1,
            "schedule": "step",
            "milestone": 45,
            "head": "linear",
        },
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"lr": (0.003, 0.01, 0.03, 0.1)}

    Params = JointParams

    params: JointParams

    def learn_session(self, session: Session) -> None:
        """Append rows for the new classes and train on with all images so far."""
        generator = self.context.random.torch("session", session.index)
        self.remember(session)
        self.append_rows(session.way, generator)
        size = self.params.batch_size
        self.fit(session, lambda: shuffled(len(self.labels), size, generator), generator)
