"""Fine-tuned cosine rows: new classes' means, trained on their few shots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field

from fscil_bench.protocol import Session

from ._shared import citations
from ._shared.prototypes import PrototypeMethod, PrototypeParams
from ._shared.statistics import classifier_rows

MOMENTUM = DAMPENING = 0.9
"""Of SGD, in CEC's code: a step follows the running mean of the gradients."""


@dataclass(frozen=True)
class FtCosParams(PrototypeParams):
    """Parameters of fine-tuning, beside those of the means.

    Attributes:
        steps: full-batch steps of a session; 0 leaves the means as they are.
        lr: SGD's learning rate. Gradients shrink with the length of a row, so that `mean = unit`
            wants a smaller one.
        temperature: factor on the cosines, under the cross-entropy.
    """

    steps: Annotated[int, Field(ge=0)] = 100
    lr: Annotated[float, Field(gt=0)] = 0.1
    temperature: Annotated[float, Field(gt=0)] = 16.0


class FtCos(PrototypeMethod):
    """Cosine classifier whose new rows are fine-tuned from the means.

    Zhang et al., "Few-Shot Incremental Learning with Continually Evolved Classifiers" (CEC),
    CVPR 2021: the released code's session mode `ft_cos`.

    Base rows are class means, as in `ncm`. The rows of a session's classes start from the means of
    their shots and are trained on these shots' frozen features alone: cross-entropy over the rows
    of all classes seen, on temperature times cosine, full batch, SGD with momentum and dampening
    0.9 and no weight decay. Only the new rows move, so that what an old class scores stays; the
    gradient turns a new row towards its shots and away from the old rows that lie near them.
    Few-shot episodes are trained likewise, on an episode's classes alone.

    It stores the rows, 4·C·D bytes; the shots are dropped.

    Deviations: none in the training. Provenance of the defaults, and accuracies:
    docs/methods/prototypes.md.
    """

    name = "ft_cos"
    title = "Ft-cos"
    bibtex = citations.CEC
    Params = FtCosParams
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "steps": (30, 100, 300),
        "lr": (0.01, 0.1, 1.0),
    }

    params: FtCosParams

    def _new_rows(self, session: Session, rivals: torch.Tensor) -> torch.Tensor:
        means = self._means(session)
        features = self._embed(session)
        labels = classifier_rows(session, len(rivals), features.device)
        return fine_tuned(means, rivals, features, labels, self.params)


def fine_tuned(
    rows: torch.Tensor,
    rivals: torch.Tensor,
    features: torch.Tensor,
    labels: torch.Tensor,
    params: FtCosParams,
) -> torch.Tensor:
    """Return new rows (way, D) trained by cross-entropy on scaled cosines, full batch.

    Args:
        rows: where the new rows start (way, D).
        rivals: rows of earlier classes (r, D), which stay as they are.
        features: shots of the new classes (n, D).
        labels: their rows (n,), counted from the first rival on.
        params: steps, learning rate and temperature.
    """
    units = F.normalize(features, dim=1)
    fixed = units @ F.normalize(rivals, dim=1).T
    rows, velocity = rows.clone(), torch.zeros_like(rows)
    for step in range(params.steps):
        with torch.enable_grad():
            moving = rows.requires_grad_()
            cosines = torch.cat([fixed, units @ F.normalize(moving, dim=1).T], dim=1)
            loss = F.cross_entropy(params.temperature * cosines, labels)
            (gradient,) = torch.autograd.grad(loss, moving)
        # As in PyTorch's SGD, which CEC uses, the first step is not dampened.
        velocity = MOMENTUM * velocity + (1 - DAMPENING) * gradient if step else gradient
        rows = rows.detach() - params.lr * velocity
    return rows
