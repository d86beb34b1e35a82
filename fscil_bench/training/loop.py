"""The base-session loop: data order, augmentation, schedule, checkpoints; the same for all recipes.

Every random draw of epoch e comes from a generator derived from (representation_seed, e), so an
interrupted training resumes at the last whole epoch and ends as an uninterrupted one does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.backbone import Backbone, Transform
from fscil_bench.data.pixels import Images
from fscil_bench.errors import FscilError, StoreError, UsageError
from fscil_bench.method import batches
from fscil_bench.progress import Progress, Task
from fscil_bench.protocol import Recipe
from fscil_bench.representation import Representation, TrainedRepresentation, TrainingBatch
from fscil_bench.seeding import Randomness
from fscil_bench.spec import RepresentationSpec
from fscil_bench.store.tensors import load_tensors, save_tensors
from fscil_bench.training.augment import Operation, augment, network_input, resized_crops
from fscil_bench.training.compute import autocast
from fscil_bench.training.weights import NONE, Pretraining, load_pretrained

EVALUATION_BATCH = 500
EVALUATION_PIXELS = (2**23, 2**18)
"""Pixels of a batch of resized images on an accelerator, and on the CPU: there, larger tensors are
handed back to the system and fetched again at every layer, which halves the speed.
"""


@dataclass(frozen=True)
class LabelledImages:
    """Some of the stored images: `members` (n,) are their indices, `labels` (n,) their classes."""

    images: Images
    members: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


@dataclass
class TrainingState:
    """What a checkpoint holds: networks, optimiser, and the record so far."""

    backbone: nn.Module
    head: nn.Module
    optimiser: torch.optim.SGD
    best: dict[str, torch.Tensor]
    log: dict[str, Any]

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        return len(self.log["losses"])

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the tensors of backbone and head under one name each."""
        parts = {"backbone": self.backbone, "head": self.head}
        return {
            f"{part}.{name}": tensor
            for part, module in parts.items()
            for name, tensor in module.state_dict().items()
        }

    def load_weights(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore what `weights` returned."""
        for part, module in (("backbone", self.backbone), ("head", self.head)):
            prefix = f"{part}."
            own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            module.load_state_dict(own)

    def parameters(self) -> list[nn.Parameter]:
        """Return all trainable parameters, in a fixed order."""
        return [*self.backbone.parameters(), *self.head.parameters()]

    def save(self, path: Path) -> None:
        """Write a checkpoint atomically."""
        tensors = {f"weights.{k}": v for k, v in self.weights().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        for number, parameter in enumerate(self.parameters()):
            buffer = self.optimiser.state[parameter].get("momentum_buffer")
            if buffer is not None:
                tensors[f"momentum.{number}"] = buffer
        save_tensors(path, tensors, self.log)

    def load(self, path: Path) -> None:
        """Restore a checkpoint.

        Raises:
            StoreError: it is damaged.
        """
        tensors, self.log = load_tensors(path)

        def part(prefix: str) -> dict[str, torch.Tensor]:
            return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

        self.load_weights(part("weights."))
        self.best = part("best.")
        momentum = part("momentum.")
        for number, parameter in enumerate(self.parameters()):
            if str(number) in momentum:
                buffer = torch.empty_like(parameter).copy_(momentum[str(number)])
                self.optimiser.state[parameter]["momentum_buffer"] = buffer


class BaseTraining:
    """The training of one representation on base images.

    Args:
        spec: what decides the result; its recipe, images, backbone, seed and precision are used.
        representation: the objective.
        backbone: the network.
        base: the images to train on.
        heldout: base training images kept out, to measure (and with `checkpoint = "best"`, choose)
            epochs on; may be empty.
        device: where to train.
        pretraining: the weights that the backbone starts from.
    """

    def __init__(
        self,
        spec: RepresentationSpec,
        representation: Representation,
        backbone: Backbone,
        base: LabelledImages,
        heldout: LabelledImages,
        device: torch.device,
        pretraining: Pretraining | None = None,
    ) -> None:
        self.backbone, self.transform = backbone, input_transform(spec)
        self.pretraining = pretraining or Pretraining(NONE)
        self.spec, self.representation = spec, representation
        self.base, self.heldout, self.device = base, heldout, device
        self.random = Randomness(("representation", spec.seed))

    def run(self, folder: Path, progress: Progress) -> TrainedRepresentation:
        """Train, or load from `folder` what is finished.

        A checkpoint is written after every epoch; a training that was interrupted goes on from
        it. With `checkpoint = "best"` the epoch with the highest accuracy on the held-out images
        is kept (the earlier of two equals), else the last.

        Raises:
            FscilError: the loss is not finite.
            StoreError: a file in `folder` is damaged or cannot be written.
        """
        recipe, state = self.spec.recipe, self.fresh_state()
        final, checkpoint = folder / "weights.safetensors", folder / "checkpoint.safetensors"
        if final.exists():
            tensors, state.log = load_tensors(final)
            if not all(map(_finite, tensors.values())):
                raise StoreError(
                    f"{final}: holds weights that are not finite; remove the folder {folder}, and "
                    "they are trained again"
                )
            state.load_weights(tensors)
            return self._finished(state)
        if checkpoint.exists():
            state.load(checkpoint)
            progress.say(f"resuming base training after epoch {state.epoch} of {recipe.epochs}")
        with progress.task(f"base training ({self.spec.name})", recipe.epochs) as task:
            while state.epoch < recipe.epochs:
                self.train_epoch(state, task)
                self._evaluate_epoch(state)
                state.save(checkpoint)
        if recipe.checkpoint == "best":
            state.load_weights(state.best)
        save_tensors(final, state.weights(), state.log)
        checkpoint.unlink(missing_ok=True)
        return self._finished(state)

    def fresh_state(self) -> TrainingState:
        """Return initialised networks with their optimiser."""
        spec, recipe = self.spec, self.spec.recipe
        backbone = self.backbone.fresh(self.random.seed("backbone"))
        load_pretrained(backbone, self.backbone, self.pretraining)
        backbone.to(self.device)
        check_output(backbone, self.backbone, self.transform, self.device)
        backbone.requires_grad_(False)
        for part in self.representation.tuned(backbone):
            part.requires_grad_(True)
        dim, generator = self.backbone.dim, self.random.torch("head")
        head = self.representation.build_head(dim, spec.base_classes, generator).to(self.device)
        self.representation.begin(backbone, head)
        optimiser = torch.optim.SGD(
            [*backbone.parameters(), *head.parameters()],
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.momentum > 0,
        )
        return TrainingState(backbone, head, optimiser, {}, empty_log())

    def train_epoch(self, state: TrainingState, task: Task) -> None:
        """Train one epoch, every image once, and record its mean loss, rate and seconds.

        Raises:
            FscilError: the loss is not finite.
        """
        epoch, started = state.epoch, time.perf_counter()
        rate = learning_rate(self.spec.recipe, epoch)
        for group in state.optimiser.param_groups:
            group["lr"] = rate
        state.backbone.eval()
        for part in (*self.representation.tuned(state.backbone), state.head):
            part.train()
        generator = self.random.torch("epoch", epoch)
        total, seen = torch.zeros((), device=self.device), 0
        last = f"loss {state.log['losses'][-1]:.3f}" if epoch else ""
        for indices in epoch_batches(len(self.base), self.spec.recipe.batch_size, generator):
            total += self.step(state, self._batch(indices, epoch, generator)) * len(indices)
            seen += len(indices)
            task.update(epoch + seen / len(self.base), last)
        loss = float(total) / len(self.base)
        if not math.isfinite(loss):
            raise FscilError(
                f"base training: the loss of epoch {epoch + 1} is {loss}; lower the recipe's lr "
                f"({self.spec.recipe.lr}) or use --precision fp32"
            )
        # The last step of an epoch can spoil what its mean loss does not show.
        broken = [name for name, tensor in state.weights().items() if not _finite(tensor)]
        if broken:
            raise FscilError(
                f"base training: after epoch {epoch + 1} the weights {broken[0]!r} are not finite; "
                f"lower the recipe's lr ({self.spec.recipe.lr}) or use --precision fp32"
            )
        state.log["losses"].append(loss)
        state.log["rates"].append(rate)
        state.log["seconds"] += time.perf_counter() - started

    def step(self, state: TrainingState, batch: TrainingBatch) -> torch.Tensor:
        """Take one optimiser step; return the detached loss, a scalar tensor."""
        with autocast(self.spec.precision, self.device):
            loss = self.representation.loss(state.backbone, state.head, batch)
        state.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        state.optimiser.step()
        return loss.detach().float()

    def _batch(self, indices: np.ndarray, epoch: int, generator: torch.Generator) -> TrainingBatch:
        labels, operations = torch.from_numpy(self.base.labels[indices]), self.spec.recipe.augment

        def view(operations: Sequence[Operation] = operations) -> torch.Tensor:
            return self._view(indices, operations, generator)

        def episode(ways: int, shots: int) -> tuple[torch.Tensor, torch.Tensor]:
            classes = torch.randperm(self.spec.base_classes, generator=generator)[:ways]
            drawn = drawn_shots(self.base.labels, classes, shots, generator)
            return self._view(drawn, operations, generator), classes.to(self.device)

        return TrainingBatch(view(), labels.to(self.device), epoch, view, generator, episode)

    def _view(
        self, indices: np.ndarray, operations: Sequence[Operation], generator: torch.Generator
    ) -> torch.Tensor:
        images, members = self.spec.images, self.base.members[indices]
        if "resized_crop" in operations:
            pixels = resized_crops(self.base.images.whole(members), images.size, generator)
        else:
            pixels = self.base.images.squares(members, images.size)
        changed = augment(pixels, operations, generator)
        return network_input(changed, self.transform, self.device)

    def _evaluate_epoch(self, state: TrainingState) -> None:
        """Record the accuracy on held-out base training images, and keep the best weights."""
        if not len(self.heldout):
            return
        rows = self.representation.classifier(state.head).detach().float().cpu()
        rows = F.normalize(rows, dim=1)
        blocks = extract_features(state.backbone, self.heldout, self.spec, self.device)
        predicted = torch.cat([(block @ rows.T).argmax(1) for block in blocks]).numpy()
        accuracy = float(np.mean(predicted == self.heldout.labels))
        earlier = state.log["heldout_accuracy"]
        if self.spec.recipe.checkpoint == "best" and (not earlier or accuracy > max(earlier)):
            state.best = {name: tensor.detach().clone() for name, tensor in state.weights().items()}
            state.log["best_epoch"] = state.epoch
        earlier.append(accuracy)

    def _finished(self, state: TrainingState) -> TrainedRepresentation:
        state.backbone.eval()
        state.head.eval()
        for parameter in state.parameters():
            parameter.requires_grad_(False)
        extras = self.representation.extra_tensors(state.head)
        return TrainedRepresentation(
            key=self.spec.key,
            backbone=state.backbone,
            classifier=self.representation.classifier(state.head).detach().float().cpu(),
            scale=self.representation.scale(),
            extras={name: tensor.detach().cpu() for name, tensor in extras.items()},
            log=dict(state.log),
        )


def _finite(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def empty_log() -> dict[str, Any]:
    """Return a training record of no epochs: mean losses, rates, accuracies on held-out images."""
    return {"losses": [], "rates": [], "heldout_accuracy": [], "best_epoch": None, "seconds": 0.0}


def learning_rate(recipe: Recipe, epoch: int) -> float:
    """Return the rate of an epoch (counted from 0).

    `step`: multiplied by `gamma` at each milestone; `cosine`: half a cosine from `lr` towards 0
    over all epochs (Loshchilov and Hutter, 2017, without restarts).
    """
    if recipe.schedule == "step":
        return recipe.lr * recipe.gamma ** sum(epoch >= m for m in recipe.milestones)
    if recipe.schedule == "cosine":
        return recipe.lr * (1 + math.cos(math.pi * epoch / recipe.epochs)) / 2
    return recipe.lr


def epoch_batches(count: int, size: int, generator: torch.Generator) -> Iterator[np.ndarray]:
    """Yield the indices of one epoch's batches in a random order.

    The last batch may be smaller; a single left-over sample joins the batch before it, since
    batch normalisation cannot learn from one.
    """
    order = torch.randperm(count, generator=generator).numpy()
    starts = list(range(0, count, size))
    if len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()
    for start, end in zip(starts, [*starts[1:], count], strict=True):
        yield order[start:end]


def drawn_shots(
    labels: np.ndarray, classes: torch.Tensor, shots: int, generator: torch.Generator
) -> np.ndarray:
    """Return the indices (w·k,) of `shots` samples of each of the classes (w,), class by class.

    Of all classes as few as the smallest of them has, where that is less.
    """
    members = [np.flatnonzero(labels == c) for c in classes.numpy()]
    count = min(shots, *map(len, members))
    picks = [torch.randperm(len(own), generator=generator)[:count].numpy() for own in members]
    return np.concatenate([own[pick] for own, pick in zip(members, picks, strict=True)])


def as_it_is(images: torch.Tensor) -> torch.Tensor:
    """Return the images unchanged."""
    return images


def input_transform(spec: RepresentationSpec) -> Transform:
    """Return how the images of a specification become its backbone's input."""
    return spec.transform or Transform.of(spec.images)


@torch.no_grad()
def extract_features(
    backbone: nn.Module,
    chosen: LabelledImages,
    spec: RepresentationSpec,
    device: torch.device,
    shown: Callable[[torch.Tensor], torch.Tensor] = as_it_is,
) -> Iterator[torch.Tensor]:
    """Yield float32 features (b, D) on the CPU, batch by batch, under the test transform.

    `shown` is what is done to uint8 (b, S, S, 3) before the network sees them.

    Always in full precision: means and covariances are taken from them, and bf16 moves those of
    EfficientNet-Lite0 by 8 % of their length (benchmarks/bench_pretrained.py).
    """
    backbone.eval()
    transform = input_transform(spec)
    for part in batches(len(chosen.members), evaluation_batch(spec, device)):
        block = shown(chosen.images.squares(chosen.members[part], spec.images.size))
        yield backbone(network_input(block, transform, device)).float().cpu()


def evaluation_batch(spec: RepresentationSpec, device: torch.device) -> int:
    """Return how many images are computed at once; of resized ones few enough to be fast."""
    if spec.transform is None:
        return EVALUATION_BATCH
    pixels = EVALUATION_PIXELS[device.type == "cpu"]
    return max(1, min(EVALUATION_BATCH, pixels // spec.transform.size**2))


@torch.no_grad()
def check_output(
    network: nn.Module, backbone: Backbone, transform: Transform, device: torch.device
) -> None:
    """Let a network see an image, and refuse one that gives no vector of its dimension.

    Raises:
        UsageError: it cannot take images of that size, or gives maps, tokens or another dimension.
    """
    side, name = transform.size, f"backbone {backbone.called!r}"
    training = network.training
    try:
        found = network.eval()(torch.zeros(1, 3, side, side, device=device))
    except Exception as error:  # it may be anybody's code
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{name} cannot take images of {side}×{side}: {reason}") from error
    finally:
        network.train(training)
    shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
    if shape == (1, backbone.dim):
        return
    kinds = {3: "tokens", 4: "maps"}
    kind = kinds.get(len(shape), "an array") if isinstance(shape, tuple) else "an object"
    if isinstance(shape, tuple) and len(shape) == 2:
        raise UsageError(f"{name} gives {shape[1]} features, its dim says {backbone.dim}")
    raise UsageError(
        f"{name} gives {kind} {shape} for an image instead of a vector (1, {backbone.dim}); let "
        "`build` end in a pooling"
    )
