"""SFMS: features synthesised by a VAE, and classes as vectors, on a mixture of subspaces."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch.nn import functional as F

from fscil_bench.errors import DataError, FscilError, UsageError
from fscil_bench.method import Method, MethodContext, Terms
from fscil_bench.params import file_field
from fscil_bench.protocol import LabelledSamples, Queries, Session

from .._shared.network import shuffled
from .._shared.state import part_of, prefixed
from .._shared.statistics import class_means, classifier_rows, in_space
from .subspaces import Subspaces, fitted
from .vae import ConditionalVae, Decoder, train
from .vectors import read_vectors, refuse_alike, refuse_zero

SPREAD_FLOOR = 1e-6
"""Least standard deviation by which a dimension is divided, as a fraction of the mean one."""

DECODER = "decoder."
"""How the decoder's tensors are prefixed in the state."""


class Sfms(Method):
    """Synthesised features on a mixture of subspaces (SFMS), an outline filled in.

    Cheraghian, Rahman, Ramasinghe, Fang, Simon, Petersson and Harandi, "Synthesized Feature Based
    Few-Shot Class-Incremental Learning on a Mixture of Subspaces", ICCV 2021. A reconstruction
    with low confidence: no code, and no more of the paper than its outline was at hand.

    Every class has a vector: the word vector of its name, from a file (`vectors`), else **its mean
    feature, and that is another method** than the published one; the run's notes say which. Base
    features are clustered into subspaces; each has a projection of features to vectors. A
    class scores by the cosine of projection and vector, averaged over subspaces by how likely the
    feature is of each. A VAE, given a class's vector, learns to make its features. Sessions train
    the projections: cross-entropy on the shots and on features made for earlier classes, and
    distillation of what the projections said before. Backbone, subspaces and VAE stay.

    It stores vectors 4·C·E, projections 4·K·E·D, subspaces 4·K·D·(q + 1), the VAE's decoder
    4·(H·(D + E + Z + 1) + D), and mean and spread of base features 8·D bytes.

    What is settled here and how: docs/methods/sfms.md.
    """

    name = "sfms"
    title = "SFMS"
    bibtex = """@inproceedings{cheraghian2021sfms,
  author = {Cheraghian, Ali and Rahman, Shafin and Ramasinghe, Sameera and Fang, Pengfei and
            Simon, Christian and Petersson, Lars and Harandi, Mehrtash},
  title = {Synthesized Feature Based Few-Shot Class-Incremental Learning on a Mixture of Subspaces},
  booktitle = {International Conference on Computer Vision (ICCV)},
  year = {2021}
}"""
    pretrain_params = (
        *("vectors", "subspaces", "dims", "rounds", "temperature"),
        *("hidden", "latent", "vae_epochs", "vae_lr", "base_epochs", "base_lr", "batch"),
    )
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "lr": (1e-4, 1e-3),
        "distillation": (0.0, 1.0),
    }

    @dataclass(frozen=True)
    class Params:
        """The classes' vectors, the mixture, the VAE, and how projections learn (Adam).

        Attributes:
            vectors: an .npy file (C, E) of the classes' vectors, in the protocol's order of
                classes; empty for mean features.
            subspaces: K.
            dims: q, of each.
            rounds: of their clustering.
            temperature: factor on the cosines.
            hidden: H, width of the VAE's hidden layers.
            latent: Z, dimensions of its code.
            vae_epochs: its passes over the base features.
            vae_lr: its learning rate.
            base_epochs: passes of the projections over the base features.
            base_lr: their learning rate there.
            batch: features of a step, of both.
            epochs: steps of a session, all shots in each.
            lr: learning rate there.
            samples: features that a step makes for each earlier class.
            distillation: weight of it.
        """

        vectors: str = file_field()
        subspaces: Annotated[int, Field(gt=0)] = 3
        dims: Annotated[int, Field(gt=0)] = 8
        rounds: Annotated[int, Field(gt=0)] = 20
        temperature: Annotated[float, Field(gt=0)] = 16.0
        hidden: Annotated[int, Field(gt=0)] = 256
        latent: Annotated[int, Field(gt=0)] = 32
        vae_epochs: Annotated[int, Field(ge=0)] = 20
        vae_lr: Annotated[float, Field(gt=0)] = 1e-3
        base_epochs: Annotated[int, Field(ge=0)] = 10
        base_lr: Annotated[float, Field(gt=0)] = 1e-3
        batch: Annotated[int, Field(gt=0)] = 128
        epochs: Annotated[int, Field(ge=0)] = 50
        lr: Annotated[float, Field(ge=0)] = 1e-4
        samples: Annotated[int, Field(ge=0)] = 5
        distillation: Annotated[float, Field(ge=0)] = 1.0

    params: Params

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self.words = read_vectors(self.params.vectors)
        self.subspaces: Subspaces
        self.decoder: Decoder
        self.projections: torch.Tensor
        self.vectors: torch.Tensor
        self.moments: torch.Tensor

    @classmethod
    def check(cls, params: Any, terms: Terms) -> None:
        """Refuse more subspaces than base images or as wide as the features, and unfit vectors.

        Rows beyond the protocol's classes are not used, and a warning says which.
        """
        if params.dims >= terms.feature_dim:
            raise UsageError(
                f"sfms: dims = {params.dims}, and features have {terms.feature_dim}; lower dims"
            )
        images = terms.base_classes * terms.base_images
        if params.subspaces > images:
            raise UsageError(
                f"sfms: subspaces = {params.subspaces}, and there are {images} base images to "
                "divide among them; lower subspaces"
            )
        words = read_vectors(params.vectors)
        if words is None:
            return
        if len(words) < terms.classes:
            raise UsageError(
                f"sfms: {params.vectors} has vectors of {len(words)} classes, the protocol "
                f"{terms.classes}; give one row for each, in the protocol's order"
            )
        if len(words) > terms.classes:
            warnings.warn(
                f"sfms: {params.vectors} has {len(words)} rows and the protocol {terms.classes} "
                f"classes: rows {terms.classes} to {len(words) - 1} are not used; row 0 is the "
                "vector of the protocol's first class, and so on",
                stacklevel=2,
            )
        refuse_alike(params.vectors, words[: terms.classes])

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Cluster the base features, and train the VAE and the projections on them."""
        p, random = self.params, self.context.base_random
        features = self._embed(base)
        labels = classifier_rows(base, 0, features.device)
        mean, spread = features.mean(dim=0), features.std(dim=0)
        if not bool(spread.any()):
            raise DataError("sfms: all base features are equal; check the backbone's training")
        self.moments = torch.stack([mean, spread.clamp(min=SPREAD_FLOOR * float(spread.mean()))])
        self.vectors = self._vectors(base, features)
        self.subspaces = fitted(features, p.subspaces, p.dims, p.rounds, random.torch("subspaces"))
        progress(0.1)
        sizes = (self.context.feature_dim, self.vectors.shape[1], p.hidden, p.latent)
        vae = ConditionalVae(*sizes, random.torch("vae")).to(self.context.device)
        standard = (features - self.moments[0]) / self.moments[1]
        given = F.normalize(self.vectors, dim=1)[labels]
        order = random.torch("vae", "order")
        train(vae, standard, given, p.vae_epochs, p.vae_lr, p.batch, order)
        self.decoder = vae.decoder
        progress(0.6)
        self.projections = self._first_projections(random.torch("projections")).requires_grad_()
        optimiser, generator = self._optimiser(p.base_lr), random.torch("projections", "order")
        for _ in range(p.base_epochs):
            for indices in shuffled(len(features), p.batch, generator):
                own = indices.to(features.device)
                loss = F.cross_entropy(self._logits(features[own]), labels[own])
                self._step(optimiser, loss, "base_lr", p.base_lr)
        self._refuse_lost(features, "base_lr", p.base_lr)
        return self.state_dict()

    def load_pretrained(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take what `pretrain` learnt."""
        self.load_state_dict(tensors)

    def learn_base(self, base: Session) -> None:
        """Keep what was learnt; check that features are numbers."""
        self._embed(base)

    def learn_session(self, session: Session) -> None:
        """Append the new classes' vectors, and train the projections."""
        p, earlier = self.params, len(self.vectors)
        features = self._embed(session)
        labels = classifier_rows(session, earlier, features.device)
        self.vectors = torch.cat([self.vectors, self._vectors(session, features)])
        generator = self.context.random.torch("session", session.index)
        before = self.projections.detach().clone()
        self.projections = before.clone().requires_grad_()
        optimiser = self._optimiser(p.lr)
        made = torch.arange(earlier, device=features.device).repeat_interleave(p.samples)
        everything = torch.cat([labels, made])
        for _ in range(p.epochs):
            shown = torch.cat([features, self.synthesised(made, generator)])
            logits = self._logits(shown)
            loss = F.cross_entropy(logits[: len(labels)], labels)
            if len(made):
                loss = loss + F.cross_entropy(logits[len(labels) :], everything[len(labels) :])
            if p.distillation:
                with torch.no_grad():
                    old = self._logits(shown, before)[:, :earlier]
                loss = loss + p.distillation * distillation(logits[:, :earlier], old)
            self._step(optimiser, loss, "lr", p.lr)
        self.projections = self.projections.detach()
        self._refuse_lost(features, "lr", p.lr)

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the logits (n, classes seen)."""
        return self._logits(self._embed(queries)).detach()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return vectors, projections, subspaces, moments of base features, and the VAE."""
        state = {
            "vectors": self.vectors,
            "projections": self.projections,
            "subspace_means": self.subspaces.means,
            "subspace_bases": self.subspaces.bases,
            "subspace_variance": self.subspaces.variance,
            "moments": self.moments,
            **prefixed(DECODER, self.decoder),
        }
        return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore them."""
        p, device = self.params, self.context.device
        copies = {name: x.clone().to(device) for name, x in state.items()}
        self.vectors, self.projections = copies["vectors"], copies["projections"]
        self.moments = copies["moments"]
        self.subspaces = Subspaces(
            *(copies[f"subspace_{name}"] for name in ("means", "bases", "variance"))
        )
        sizes = (self.context.feature_dim, self.vectors.shape[1], p.hidden, p.latent)
        self.decoder = Decoder(*sizes, torch.Generator()).to(device)
        self.decoder.load_state_dict(part_of(copies, DECODER))

    def notes(self) -> dict[str, int | float | str]:
        """Return what the classes' vectors are."""
        file = self.params.vectors
        return {"class_vectors": f"of {Path(file).name}" if file else "class means"}

    @torch.no_grad()
    def synthesised(self, classes: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return features (n, D) that the VAE makes for classes (n,), without noise of its own."""
        codes = torch.randn(len(classes), self.params.latent, generator=generator)
        vectors = F.normalize(self.vectors, dim=1)[classes]
        made: torch.Tensor = self.decoder(codes.to(vectors.device), vectors)
        return self.moments[0] + self.moments[1] * made

    def _logits(
        self, features: torch.Tensor, projections: torch.Tensor | None = None
    ) -> torch.Tensor:
        projections = self.projections if projections is None else projections
        cosines = matched(features, projections, self.vectors, self.subspaces.posterior(features))
        return self.params.temperature * cosines

    def _vectors(self, session: Session, features: torch.Tensor) -> torch.Tensor:
        """Return the vectors (way, E) of a session's classes."""
        if self.words is not None:
            return self.words[list(session.class_ids)].to(features.device)
        labels = session.labels.to(features.device)
        means = class_means(features, labels, session.class_ids).float()
        refuse_zero(means, session.class_ids)
        return means

    def _first_projections(self, generator: torch.Generator) -> torch.Tensor:
        """Return the identity where vectors are mean features, else random ones (K, E, D)."""
        count, dim = len(self.subspaces.means), self.context.feature_dim
        if self.words is None:
            first = torch.eye(dim).repeat(count, 1, 1)
        else:
            shape = (count, self.vectors.shape[1], dim)
            first = torch.randn(shape, generator=generator) / dim**0.5
        return first.to(self.context.device)

    def _optimiser(self, lr: float) -> torch.optim.Optimizer:
        return torch.optim.Adam([self.projections], lr=lr)

    def _step(
        self, optimiser: torch.optim.Optimizer, loss: torch.Tensor, name: str, rate: float
    ) -> None:
        if not bool(torch.isfinite(loss)):
            raise FscilError(
                f"method 'sfms' diverges: the loss is {loss.item()}; lower {name} = {rate:g}"
            )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    @torch.no_grad()
    def _refuse_lost(self, features: torch.Tensor, name: str, rate: float) -> None:
        """Refuse projections that features (n, D) are too long under to be compared by cosine.

        No loss shows that: such cosines are 0, for all classes alike.
        """
        lengths = projected(features, self.projections).norm(dim=2)
        if not bool(torch.isfinite(lengths).all()):
            raise FscilError(
                f"method 'sfms' diverges: the length of a projection is not finite; lower {name} = "
                f"{rate:g}"
            )

    def _embed(self, samples: LabelledSamples | Queries) -> torch.Tensor:
        return in_space(samples, device=self.context.device)


def matched(
    features: torch.Tensor,
    projections: torch.Tensor,
    vectors: torch.Tensor,
    posterior: torch.Tensor,
) -> torch.Tensor:
    """Return the cosine (n, C) of projected features and vectors, averaged over subspaces.

    Args:
        features: (n, D).
        projections: (K, E, D).
        vectors: (C, E).
        posterior: weights of the subspaces (n, K).
    """
    units = F.normalize(projected(features, projections), dim=2)
    return (posterior[:, :, None] * units).sum(dim=1) @ F.normalize(vectors, dim=1).T


def projected(features: torch.Tensor, projections: torch.Tensor) -> torch.Tensor:
    """Return features (n, D) under projections (K, E, D), (n, K, E)."""
    return torch.einsum("ked,nd->nke", projections, features)


def distillation(logits: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Return KL(old ‖ new) of the softmax of logits (n, C), a mean over samples."""
    target = F.log_softmax(old, dim=1)
    return F.kl_div(F.log_softmax(logits, dim=1), target, reduction="batchmean", log_target=True)
