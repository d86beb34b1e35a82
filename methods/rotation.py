"""The rotation representation: classes and, beside them, which way up an image is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.representation import Representation, TrainingBatch

from ._shared.augmentation import turned
from ._shared.cosine import cosine_logits, drawn_rows

TURNS = 4
"""Quarter turns that an image can be shown with, none included."""


class RotationHead(nn.Module):
    """The base classifier's rows, and a linear layer that tells the four rotations apart."""

    def __init__(self, feature_dim: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.rows = drawn_rows(feature_dim, classes, generator)
        self.turns = drawn_rows(feature_dim, TURNS, generator)


class Rotation(Representation):
    """Cross-entropy on scaled cosine logits, plus four-way rotation prediction.

    Gidaris et al., "Unsupervised Representation Learning by Predicting Image Rotations", ICLR
    2018, for the task; Gidaris et al., "Boosting Few-Shot Visual Learning with Self-Supervision",
    ICCV 2019, for its use beside the classes; in few-shot class-incremental learning Mazumder et
    al. (FSLL), AAAI 2021, and Peng et al. (S3C and others) train so.

    A network that has to say which way up an image is must look at what the classes alone do not
    ask for, and keeps features that new classes can use. Upright images are classified; the same
    images turned by 0, 90, 180 or 270 degrees have their rotation predicted from the same
    features; both losses are added.

    Deviations: the rotation is read off the pooled features by a linear layer, where FSLL has a
    small convolutional network; `turns = one` shows each image in one rotation drawn for the step
    (twice the cost of `cosine`), where the published form shows all four (`turns = all`, five
    times the cost). `weight` 1 is FSLL's and Gidaris's, `temperature` 16 that of CEC's code.
    """

    name = "rotation"
    bibtex = """@inproceedings{gidaris2018rotation,
  author = {Gidaris, Spyros and Singh, Praveer and Komodakis, Nikos},
  title = {Unsupervised Representation Learning by Predicting Image Rotations},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year = {2018}
}"""

    mean_over_images = True

    @dataclass(frozen=True)
    class Params:
        """`weight` multiplies the rotation loss; `turns` is how many rotations a step shows."""

        temperature: Annotated[float, Field(gt=0)] = 16.0
        weight: Annotated[float, Field(ge=0)] = 1.0
        turns: Literal["one", "all"] = "one"

    params: Params

    def build_head(self, feature_dim: int, classes: int, generator: torch.Generator) -> nn.Module:
        """Return class rows and rotation rows."""
        return RotationHead(feature_dim, classes, generator)

    def loss(self, backbone: nn.Module, head: nn.Module, batch: TrainingBatch) -> torch.Tensor:
        """Return the class loss of the upright images plus that of the rotations.

        Upright and turned images pass through the backbone together, so that batch normalisation
        sees both.
        """
        assert isinstance(head, RotationHead)
        if self.params.weight == 0:
            shown, turns = batch.images[:0], batch.labels[:0]
        else:
            shown, turns = shown_turns(batch, self.params.turns)
        upright = len(batch.labels)
        features = backbone(torch.cat([batch.images, shown])).float()
        logits = cosine_logits(features[:upright], head.rows.weight, self.params.temperature)
        loss = F.cross_entropy(logits, batch.labels)
        if len(shown):
            with torch.autocast(features.device.type, enabled=False):
                told = F.cross_entropy(head.turns(features[upright:]), turns)
            loss = loss + self.params.weight * told
        return loss

    def classifier(self, head: nn.Module) -> torch.Tensor:
        """Return the class rows (classes, D)."""
        assert isinstance(head, RotationHead)
        return head.rows.weight

    def scale(self) -> float:
        """Return the temperature."""
        return self.params.temperature


def shown_turns(
    batch: TrainingBatch, which: Literal["one", "all"]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a step's turned images and the quarter turns (m,) they are shown with.

    `one`: each image once, its rotation drawn; m = b. `all`: each image in all four; m = 4·b.
    """
    images = batch.images
    if which == "all":
        turns = torch.arange(TURNS, device=images.device).repeat_interleave(len(images))
        return turned(images.repeat(TURNS, 1, 1, 1), turns), turns
    turns = torch.randint(TURNS, (len(images),), generator=batch.generator).to(images.device)
    return turned(images, turns), turns
