"""NC-FSCIL on frozen features: a neck that is aligned with a fixed simplex of class directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch.nn import functional as F

from fscil_bench.errors import UsageError
from fscil_bench.method import Method, MethodContext, Needs, Terms
from fscil_bench.protocol import Queries, Session

from .._shared.etf import simplex_etf
from .._shared.state import part_of, prefixed
from .._shared.statistics import class_means, in_space
from .neck import Neck, NeckTraining, train_neck

NECK = "neck."
"""How the neck's tensors are prefixed in the state."""

WARM_UP_BASE, WARM_UP_SESSION = 100, 5
"""Steps of rising rate, in the base stage and in a session: NC-FSCIL's code."""


class NcFscil(Method):
    """Neural-collapse-inspired feature-classifier alignment (NC-FSCIL), neck only.

    Yang, Yuan, Li, Lin, Torr and Tao, "Neural Collapse Inspired Feature-Classifier Alignment for
    Few-Shot Class-Incremental Learning", ICLR 2023.

    A network trained to the end on balanced classes places their means at the corners of a simplex
    (neural collapse). NC-FSCIL prescribes these corners for all classes there will ever be, a fixed
    simplex equiangular tight frame (ETF), so that classifier rows need no training and new classes
    have room from the start. What is trained is the neck between features and rows: an MLP
    D → 2D → 2D → d with LayerNorm, LeakyReLU 0.1 and a linear shortcut, whose output h, of length
    1, is drawn to its class's row by 10·½·(⟨h, e_y⟩ − 1)². A session trains it on its shots and on
    the mean backbone feature of every earlier class. A query belongs to the class seen whose row
    has the highest ⟨h, e_c⟩.

    **It must know the final class count** C, as the rows depend on it; tables flag that. d must be
    at least C.

    **Stored between sessions** (float32): class means 4·C_seen·D, the ETF 4·C·d, the neck
    4·(6·D² + 3·D·d + 12·D), and how many base classes there were (4 bytes).

    **Deviations.** Neck only: the backbone is frozen, and not taught to leave room for new
    classes, so that published accuracies are out of reach; the last step counts. These and the
    provenance of the defaults: docs/methods/nc_fscil.md.

    Features that are NaN or infinite are refused (`DataError`).
    """

    name = "nc_fscil"
    title = "NC-FSCIL"
    bibtex = """@inproceedings{yang2023ncfscil,
  author = {Yang, Yibo and Yuan, Haobo and Li, Xiangtai and Lin, Zhouchen and Torr, Philip and
            Tao, Dacheng},
  title = {Neural Collapse Inspired Feature-Classifier Alignment for Few-Shot
           Class-Incremental Learning},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year = {2023}
}"""
    needs = Needs(final_class_count=True)
    pretrain_params = ("dim", "base_epochs", "base_lr", "base_batch", "weight_decay")
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {
            "session_steps": "105,110,115,120,125,130,135,140,145,150",
            "session_lr": 0.05,
            "repeat_means": True,
        },
        "cifar100": {
            "session_steps": "50,75,100,120,140,160,200,200",
            "session_lr": 0.25,
            "mixup": 0.75,
            "balanced": True,
        },
        "mini_imagenet": {
            "session_steps": "100,110,120,130,140,150,160,170",
            "session_lr": 0.025,
            "repeat_means": True,
        },
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "base_epochs": (2, 20),
        "session_lr": (0.01, 0.025, 0.05),
        "session_steps": ("20", "50", "100"),
    }

    @dataclass(frozen=True)
    class Params:
        """How the neck is trained.

        Attributes:
            dim: d, the ETF's dimension; at least the final class count.
            base_epochs: passes over the base features.
            base_lr: learning rate there.
            base_batch: samples of a step there.
            session_steps: steps in each session, separated by commas; the last number counts for
                all later ones.
            session_lr: learning rate in sessions.
            session_batch: samples of a step there.
            weight_decay: of the neck.
            repeat_means: whether session t trains on t copies of earlier new classes' means.
            mixup: the probability that outputs of a session's step are mixed in pairs.
            balanced: whether every class of a session's batch weighs the same.
        """

        dim: Annotated[int, Field(gt=1)] = 512
        base_epochs: Annotated[int, Field(ge=0)] = 20
        base_lr: Annotated[float, Field(gt=0)] = 0.05
        base_batch: Annotated[int, Field(gt=0)] = 512
        session_steps: Annotated[str, Field(pattern=r"^\d+(,\d+)*$")] = "100"
        session_lr: Annotated[float, Field(gt=0)] = 0.025
        session_batch: Annotated[int, Field(gt=0)] = 64
        weight_decay: Annotated[float, Field(ge=0)] = 5e-4
        repeat_means: bool = False
        mixup: Annotated[float, Field(ge=0, le=1)] = 0.0
        balanced: bool = False

        def steps(self, session: int) -> int:
            """Return the steps of a session, counted from 1."""
            numbers = [int(text) for text in self.session_steps.split(",")]
            return numbers[min(session, len(numbers)) - 1]

    params: Params

    @classmethod
    def check(cls, params: Any, terms: Terms) -> None:
        """Refuse fewer dimensions than there are classes at the end."""
        if params.dim < terms.classes:
            raise UsageError(
                f"nc_fscil: dim = {params.dim} is less than the {terms.classes} classes of the "
                f"last session; set dim to {terms.classes} or more"
            )

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if context.final_class_count is None:
            raise ValueError("nc_fscil needs the final class count")
        generator = context.base_random.torch("neck", "initialisation")
        self.neck = Neck(context.feature_dim, self.params.dim, generator).to(context.device)
        self.etf = torch.empty(0, self.params.dim, device=context.device)
        self.means = torch.empty(0, context.feature_dim, device=context.device)
        self._base_classes = 0

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Draw the ETF and align the neck with it on base features; return both, on the CPU."""
        p, random, device = self.params, self.context.base_random, self.context.device
        assert self.context.final_class_count is not None
        etf = simplex_etf(self.context.final_class_count, p.dim, random.torch("etf")).to(device)
        features, labels = in_space(base, device=device), base.labels.to(device)
        size = min(p.base_batch, len(features))
        steps = p.base_epochs * (len(features) // size)
        warm_up = min(WARM_UP_BASE, steps // 10)
        training = NeckTraining(steps, p.base_lr, p.weight_decay, size, warm_up)
        neck = Neck(self.context.feature_dim, p.dim, random.torch("neck", "initialisation"))
        neck = neck.to(device)
        generator = random.torch("neck", "base batches")
        train_neck(neck, features, labels, etf, training, generator, progress)
        learnt = {"etf": etf, **prefixed(NECK, neck)}
        return {name: value.detach().cpu() for name, value in learnt.items()}

    def load_pretrained(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take ETF and neck as `pretrain` made them.

        Raises:
            UsageError: they were made for another number of classes.
        """
        made, wanted = len(tensors["etf"]), self.context.final_class_count
        if made != wanted:
            raise UsageError(
                f"nc_fscil: the stored neck was trained for {made} classes in all, these sessions "
                f"end with {wanted}; use another --cache for them"
            )
        self._load_neck(tensors)

    def learn_base(self, base: Session) -> None:
        """Take the base classes' mean features, which stand for them in later sessions."""
        self.means = self._means(base)
        self._base_classes = base.way

    def learn_session(self, session: Session) -> None:
        """Train the neck on the shots and the mean features of all earlier classes."""
        p, device = self.params, self.context.device
        repeats = session.index if p.repeat_means else 1
        old = torch.arange(len(self.means), device=device)
        kept = torch.cat([old[: self._base_classes], old[self._base_classes :].repeat(repeats)])
        features = torch.cat([in_space(session, device=device), self.means[kept]])
        labels = torch.cat([session.labels.to(device), kept])
        steps = p.steps(session.index)
        training = NeckTraining(
            steps,
            p.session_lr,
            p.weight_decay,
            p.session_batch,
            min(WARM_UP_SESSION, steps // 10),
            p.mixup,
            p.balanced,
        )
        generator = self.context.random.torch("session", session.index)
        train_neck(self.neck, features, labels, self.etf, training, generator, rate="session_lr")
        self.means = torch.cat([self.means, self._means(session)])

    @torch.no_grad()
    def scores(self, queries: Queries) -> torch.Tensor:
        """Return ⟨h, e_c⟩ (n, classes seen) of the neck's unit outputs h and the classes' rows."""
        units = F.normalize(self.neck(in_space(queries, device=self.context.device)), dim=1)
        return units @ self.etf[: len(self.means)].T

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return means (classes seen, D), ETF (C, d), the neck's tensors, base class count."""
        state = {
            "means": self.means,
            "base_classes": torch.tensor([self._base_classes], dtype=torch.int32),
            "etf": self.etf,
            **prefixed(NECK, self.neck),
        }
        return {name: value.detach().cpu().clone() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned."""
        self.means = state["means"].clone().to(self.context.device)
        self._base_classes = int(state["base_classes"])
        self._load_neck(state)

    def _load_neck(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.etf = tensors["etf"].clone().to(self.context.device)
        self.neck.load_state_dict(part_of(tensors, NECK))

    def _means(self, session: Session) -> torch.Tensor:
        features = in_space(session, device=self.context.device)
        labels = session.labels.to(self.context.device)
        return class_means(features, labels, session.class_ids).float()
