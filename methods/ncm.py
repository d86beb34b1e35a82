"""Nearest class mean on frozen features, and the representation it stands on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch.nn import functional as F

from fscil_bench.protocol import Session

from ._shared import citations
from ._shared.cosine import CosineRepresentation
from ._shared.prototypes import PrototypeMethod, PrototypeParams


@dataclass(frozen=True)
class NCMParams(PrototypeParams):
    """As of every class mean, and how many base images one is the mean of.

    Attributes:
        balanced: images of a base class, nearest its mean by cosine, that its row is the mean of;
            0 takes all.
    """

    balanced: Annotated[int, Field(ge=0)] = 0


class NCM(PrototypeMethod):
    """Nearest class mean: the decoupled cosine baseline.

    Zhang et al., "Few-Shot Incremental Learning with Continually Evolved Classifiers" (CEC),
    CVPR 2021, section 3.2 (the baseline there; `ft_cos` base, `avg_cos` sessions in its code).

    The backbone is trained on the base classes and frozen. Every class, base or new, is then
    represented by the mean of its training features under the test transform, and a query belongs
    to the class whose mean has the highest cosine similarity.

    `mean = raw` averages features as they are and normalises afterwards, as the CEC family does;
    `mean = unit` averages features of length 1, as iCaRL (Rebuffi et al., CVPR 2017) does, so that
    no sample counts more for being long. With `space = tukey` features are first raised to the
    power `beta` (Yang et al., "Free Lunch for Few-Shot Learning", ICLR 2021, eq. 3), which makes
    the skewed features after a ReLU closer to Gaussian; the mean is taken there. `balanced = 5`
    is ALICE's classifier (Peng et al., ECCV 2022): a base class's row is the mean of
    as few images as a new one has, those nearest the mean of all.

    It stores the means, 4·C·D bytes.

    Provenance of the defaults, and accuracies: docs/methods/prototypes.md.
    """

    name = "ncm"
    title = "NCM"
    bibtex = citations.CEC
    Params = NCMParams
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "space": ("raw", "auto"),
        "mean": ("raw", "unit"),
    }

    params: NCMParams

    def learn_base(self, base: Session) -> None:
        """Take the base classes' means as rows, or those of the images nearest them."""
        super().learn_base(base)
        if self.params.balanced:
            features = self._features(base)
            samples = [features[base.labels == c] for c in base.class_ids]
            rows = zip(samples, self.prototypes, strict=True)
            self.prototypes = torch.stack([self._nearest(x, w).mean(dim=0) for x, w in rows])

    def _nearest(self, features: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        cosines = F.normalize(features, dim=1) @ F.normalize(mean, dim=0)
        return features[cosines.argsort(descending=True, stable=True)[: self.params.balanced]]


class Cosine(CosineRepresentation):
    """The baseline's representation: cross-entropy on scaled cosine logits over the base classes.

    Zhang et al. (CEC), CVPR 2021, base stage: logits are temperature · cos(feature, row), with
    temperature 16 as in the released code.
    """

    name = "cosine"
    bibtex = citations.CEC

    @dataclass(frozen=True)
    class Params:
        """`temperature` multiplies the cosine (16: CEC's code)."""

        temperature: Annotated[float, Field(gt=0)] = 16.0

    params: Params
