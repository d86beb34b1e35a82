"""Nearest class mean on frozen features, and the representation it stands on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.method import Method, MethodContext
from fscil_bench.protocol import Queries, Session
from fscil_bench.representation import Representation, TrainingBatch

from ._space import Space, in_space


class NCM(Method):
    """Nearest class mean: the decoupled cosine baseline.

    Zhang et al., "Few-Shot Incremental Learning with Continually Evolved Classifiers" (CEC),
    CVPR 2021, section 3.2 (the baseline there; `ft_cos` base, `avg_cos` sessions in its code).

    The backbone is trained on the base classes and frozen. Every class, base or new, is then
    represented by the mean of its training features under the test transform, and a query belongs
    to the class whose mean has the highest cosine similarity. Means are taken of raw features and
    normalised afterwards. With `space = tukey` features are first raised to the power `beta`
    (Yang et al., "Free Lunch for Few-Shot Learning", ICLR 2021, eq. 3), which makes the skewed
    features after a ReLU closer to Gaussian.

    It stores the means, 4·C·D bytes.
    """

    name = "ncm"

    @dataclass(frozen=True)
    class Params:
        """`beta` is the exponent of space `tukey` (0.5: Yang et al.); unused in space `raw`."""

        space: Space = "raw"
        beta: Annotated[float, Field(gt=0, le=1)] = 0.5

    params: Params

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self.prototypes = torch.empty(0, context.feature_dim)

    def learn_base(self, base: Session) -> None:
        """Take the base classes' means as prototypes."""
        self.prototypes = self._means(base)

    def learn_session(self, session: Session) -> None:
        """Append the new classes' means."""
        self.prototypes = torch.cat([self.prototypes, self._means(session)])

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the cosine similarity (n, classes seen) to every prototype."""
        return self._cosines(queries, self.prototypes)

    def episode_scores(self, shots: Session, queries: Queries) -> torch.Tensor:
        """Return the cosine similarity (n, way) to the means of an episode's shots."""
        return self._cosines(queries, self._means(shots))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the prototypes (classes seen, D)."""
        return {"prototypes": self.prototypes}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore the prototypes."""
        self.prototypes = state["prototypes"].clone()

    def _cosines(self, queries: Queries, prototypes: torch.Tensor) -> torch.Tensor:
        return F.normalize(self._embed(queries.features), dim=1) @ F.normalize(prototypes).T

    def _means(self, session: Session) -> torch.Tensor:
        features = self._embed(session.features, session.labels)
        return torch.stack([features[session.labels == c].mean(dim=0) for c in session.class_ids])

    def _embed(self, features: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        return in_space(features, self.params.space, self.params.beta, features.device, labels)


class Cosine(Representation):
    """The baseline's representation: cross-entropy on scaled cosine logits over the base classes.

    Zhang et al. (CEC), CVPR 2021, base stage: logits are temperature · cos(feature, row), with
    temperature 16 as in the released code.
    """

    name = "cosine"

    @dataclass(frozen=True)
    class Params:
        """`temperature` multiplies the cosine (16: CEC's code)."""

        temperature: Annotated[float, Field(gt=0)] = 16.0

    params: Params

    def build_head(self, feature_dim: int, classes: int, generator: torch.Generator) -> nn.Module:
        """Return the classifier's rows, drawn as `torch.nn.Linear` draws its weights."""
        head = nn.Linear(feature_dim, classes, bias=False)
        bound = feature_dim**-0.5
        with torch.no_grad():
            head.weight.uniform_(-bound, bound, generator=generator)
        return head

    def loss(self, backbone: nn.Module, head: nn.Module, batch: TrainingBatch) -> torch.Tensor:
        """Return the cross-entropy of the scaled cosine logits, computed in float32."""
        features = F.normalize(backbone(batch.images).float(), dim=1)
        rows = F.normalize(self.classifier(head), dim=1)
        with torch.autocast(features.device.type, enabled=False):
            logits = self.params.temperature * features @ rows.T
        return F.cross_entropy(logits, batch.labels)

    def classifier(self, head: nn.Module) -> torch.Tensor:
        """Return the rows (classes, D)."""
        weight: torch.Tensor = head.weight  # type: ignore[assignment]
        return weight

    def scale(self) -> float:
        """Return the temperature."""
        return self.params.temperature
