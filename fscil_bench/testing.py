"""The conformance suite: what methods, representations and backbones must do, in seconds.

For the author of a plug-in it is one line in a test: ``check_method(MyMethod)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import nn

from fscil_bench.backbone import Backbone
from fscil_bench.errors import UsageError
from fscil_bench.method import Method, MethodContext, Needs, Network, Terms
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import FILE, Plugin, load_registry
from fscil_bench.protocol import LabelledSamples, Queries, Session
from fscil_bench.representation import Representation, TrainingBatch
from fscil_bench.seeding import Randomness

Tensors = Mapping[str, torch.Tensor]
M = TypeVar("M", bound=Method)

DIM = 16
BASE, WAY, SESSIONS = 6, 2, 2
EPISODE_WAY = 3
BASE_SHOTS, SIZE, SCALE = 20, 8, 16.0


class _Backbone(nn.Module):
    """A network small enough to be trained in a test."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, DIM, 3, padding=1)
        self.bn = nn.BatchNorm2d(DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.late(self.early(x))

    def early(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.conv(x)
        return out

    def late(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.relu(self.bn(x))
        return out.mean(dim=(2, 3))


class ToyTask:
    """A base session and few-shot sessions of clustered, non-negative features and images."""

    def __init__(self, shot: int = 3, queries: int = 24, needs: Needs | None = None) -> None:
        self.shot, self.query_count, self.needs = shot, queries, needs or Needs()
        self.classes = BASE + WAY * SESSIONS
        random = np.random.default_rng(0)
        self.centres = random.gamma(1.5, 1.0, (self.classes, DIM))
        self.patterns = random.integers(0, 256, (self.classes, SIZE, SIZE, 3))

    def session(self, number: int) -> Session:
        """Return session `number`, the same at every call and never the same tensors."""
        classes = self._classes(number)
        per_class = BASE_SHOTS if number == 0 else self.shot
        labels = np.repeat(classes, per_class)
        views, images = self._views(labels, seed=number, base=number == 0)
        heldout = None
        if number == 0:
            held_views, held_images = self._views(labels, seed=99)
            heldout = LabelledSamples(torch.from_numpy(labels.copy()), held_views, held_images)
        return Session(
            labels=torch.from_numpy(labels),
            views=views,
            images=images,
            index=number,
            class_ids=tuple(int(c) for c in classes),
            classes_seen=BASE + WAY * number,
            heldout=heldout,
        )

    @property
    def terms(self) -> Terms:
        """What a method's parameters are checked against."""
        return Terms(DIM, BASE, self.classes, self.shot, BASE_SHOTS, heldout=True)

    def queries(self) -> Queries:
        """Return unlabelled samples of all classes."""
        labels = np.arange(self.query_count) % self.classes
        return Queries(*self._views(labels, seed=1234))

    def episode(self, number: int) -> tuple[Session, Queries]:
        """Return the shots and queries of an episode of some of the new classes."""
        drawn = BASE + (np.arange(EPISODE_WAY) + number) % (self.classes - BASE)
        ids = BASE + np.arange(EPISODE_WAY)
        views, images = self._views(np.repeat(drawn, self.shot), seed=100 + number)
        shots = Session(
            labels=torch.from_numpy(np.repeat(ids, self.shot)),
            views=views,
            images=images,
            index=number + 1,
            class_ids=tuple(int(c) for c in ids),
            classes_seen=BASE + EPISODE_WAY,
        )
        queries = drawn[np.arange(self.query_count) % EPISODE_WAY]
        return shots, Queries(*self._views(queries, seed=200 + number))

    def context(self, method: type[Method], network_seed: int = 0) -> MethodContext:
        """Return a context as the runner would make it, with an untrained network."""
        needs = method.needs
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(network_seed)
            backbone = _Backbone()
            classifier = torch.randn(BASE, DIM)
            extras = _extras(needs.extras)
        network = Network(
            backbone=backbone,
            classifier=classifier,
            scale=SCALE,
            train_pixels=lambda pixels, generator: _pixels(pixels, generator),
            test_pixels=lambda pixels: _pixels(pixels, None),
            autocast=nullcontext,
        )
        return MethodContext(
            feature_dim=DIM,
            random=Randomness(("conformance", method.name)),
            base_random=Randomness(("conformance base", method.name)),
            device=torch.device("cpu"),
            extras=extras,
            network=network if needs.images else None,
            final_class_count=self.classes if needs.final_class_count else None,
        )

    def _classes(self, number: int) -> np.ndarray:
        start = 0 if number == 0 else BASE + WAY * (number - 1)
        return np.arange(start, start + (BASE if number == 0 else WAY))

    def _views(
        self, labels: np.ndarray, seed: int, base: bool = False
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """Return features in the views that are needed (other noise in each), and images."""
        names = (*self.needs.features, *(self.needs.base_views if base else ()))
        features, images = self._draw(labels, seed)
        others = {v: self._draw(labels, 1000 * k + seed)[0] for k, v in enumerate(names, start=1)}
        return {"plain": features} | {v: f for v, f in others.items() if v != "plain"}, images

    def _draw(self, labels: np.ndarray, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        random = np.random.default_rng([7, seed])
        centres = self.centres[labels]
        features = np.abs(centres + 0.3 * centres * random.standard_normal(centres.shape))
        noise = random.normal(0, 20, (len(labels), SIZE, SIZE, 3))
        images = np.clip(self.patterns[labels] + noise, 0, 255).astype(np.uint8)
        return torch.from_numpy(features.astype(np.float32)), torch.from_numpy(images)


def _extras(names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Return named extras as an untrained representation that has them all brings them.

    Where none that is installed does, they are four rows each.
    """
    generator = torch.Generator().manual_seed(0)
    for plugin in load_registry().plugins["representation"].values() if names else ():
        if set(names) <= set(plugin.value.extras):
            values = parse_params(f"representation {plugin.name!r}", plugin.value.Params, {})
            made = plugin.value(values)
            extras = made.extra_tensors(made.build_head(DIM, BASE, generator))
            return {name: extras[name].detach() for name in names}
    return {name: torch.rand(4, DIM, generator=generator) for name in names}


@dataclass(frozen=True)
class Verdict:
    """What the suite says of a plug-in; `problem` is empty if it keeps its contract."""

    kind: str
    name: str
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.problem or 'keeps its contract'}"


def check_plugins(files: Sequence[Path]) -> list[Verdict]:
    """Check every method, representation and backbone of plug-in files, with default parameters.

    Raises:
        UsageError: a file cannot be loaded, or none of them brings one.
    """
    registry = load_registry(tuple(files))
    checks: Mapping[str, Callable[[Any], None]] = {
        "method": check_method,
        "representation": check_representation,
        "backbone": check_backbone,
    }
    brought = [
        plugin
        for kind in checks
        for plugin in registry.plugins.get(kind, {}).values()
        if plugin.origin == FILE and not getattr(plugin.value, "variants", False)
    ]
    if not brought:
        raise UsageError(
            "no method, representation or backbone to check; name a file that brings some: "
            "--plugin FILE.py"
        )
    return [_verdict(plugin, checks[plugin.kind]) for plugin in brought]


def _verdict(plugin: Plugin, checked: Callable[[Any], None]) -> Verdict:
    problem = ""
    try:
        checked(plugin.value)
    except AssertionError as error:
        problem = str(error).removeprefix(f"{plugin.name}: ") or "an assertion of its own fails"
    except (Exception, SystemExit) as error:
        lines = [
            f.lineno for f in extract_tb(error.__traceback__) if Path(f.filename) == plugin.file
        ]
        place = f" ({plugin.file}:{lines[-1]})" if lines else ""
        problem = f"{type(error).__name__}: {error}{place}"
    return Verdict(plugin.kind, plugin.name, problem)


def check_method(method: type[Method], params: Mapping[str, Any] | None = None) -> None:
    """Check a method against its contract, on toy data with 3 shots and with 1.

    It learns from one session's samples alone, cannot need what comes later, returns finite scores
    of shape (n, classes seen) that depend neither on the order nor on the number of queries scored
    together, is deterministic without touching the global random state, survives a checkpoint
    round trip, changes nothing that it is handed, and reports the bytes that it would save. Where
    it learns few-shot episodes, their scores are finite, of shape (n, way) and the same whenever
    they are asked for, and neither its state nor what it is handed changes.

    Raises:
        AssertionError: it does not; the message says what.
    """
    values = parse_params(f"method {method.name!r}", method.Params, params or {})
    for shot in (3, 1):
        method.check(values, ToyTask(shot).terms)
    with _global_state_kept(method.name):
        tensors = _pretrained(method, values)
    for shot in (3, 1):
        task = ToyTask(shot, needs=method.needs)
        with _global_state_kept(method.name):
            scores = _learn_all(task, method, values, tensors)
            again = _learn_all(task, method, values, tensors)
        for number, (first, second) in enumerate(zip(scores, again, strict=True)):
            assert torch.equal(first, second), f"{method.name}: two runs differ, session {number}"
        _check_round_trip(task, method, values, tensors, scores)
        _check_queries(task, method, values, tensors)
        if method.learns_episodes():
            with _global_state_kept(method.name):
                _check_episodes(task, method, values, tensors)


def check_refusals(method: type[Method], params: Mapping[str, Any]) -> None:
    """Check that parameters are refused before anything is trained, or not at all.

    Raises:
        AssertionError: they are refused while the method learns, which may be hours later.
    """
    values = parse_params(f"method {method.name!r}", method.Params, params)
    try:
        method.check(values, ToyTask().terms)
    except UsageError:
        return
    try:
        _learn_all(ToyTask(needs=method.needs), method, values, _pretrained(method, values))
    except UsageError as error:
        raise AssertionError(
            f"{method.name}: {dict(params)} is refused only while it learns ({error}); refuse it "
            "in the classmethod `check`"
        ) from error


def check_representation(
    representation: type[Representation], params: Mapping[str, Any] | None = None
) -> None:
    """Check a representation: its loss is finite and trains backbone and head; extras are named.

    Raises:
        AssertionError: it does not; the message says what.
    """
    name = representation.name
    values = parse_params(f"representation {name!r}", representation.Params, params or {})
    made = representation(values)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = _Backbone()
    head = made.build_head(DIM, BASE, torch.Generator().manual_seed(1))
    twin = made.build_head(DIM, BASE, torch.Generator().manual_seed(1))
    for (key, one), two in zip(head.state_dict().items(), twin.state_dict().values(), strict=True):
        assert torch.equal(one, two), f"{name}: {key} is not drawn from the generator given"
    session = ToyTask().session(0)
    assert session.images is not None
    pixels = _pixels(session.images, None)

    def episode(ways: int, shots: int) -> tuple[torch.Tensor, torch.Tensor]:
        classes = torch.arange(BASE)[:ways]
        rows = [(session.labels == c).nonzero()[:shots, 0] for c in classes]
        return pixels[torch.cat(rows)], classes

    made.begin(backbone, head)
    batch = TrainingBatch(pixels, session.labels, 0, lambda *_: pixels, torch.Generator(), episode)
    loss = made.loss(backbone, head, batch)
    assert loss.shape == (), f"{name}: the loss has shape {tuple(loss.shape)}, not ()"
    assert bool(torch.isfinite(loss)), f"{name}: the loss is not finite"
    loss.backward()  # type: ignore[no-untyped-call]
    for part, module in (("backbone", backbone), ("head", head)):
        moved = [p.grad is not None and bool(p.grad.abs().sum() > 0) for p in module.parameters()]
        assert any(moved), f"{name}: the loss does not reach the {part}"
    shape = tuple(made.classifier(head).shape)
    assert shape == (BASE, DIM), f"{name}: classifier is {shape}, not (classes, D)"
    assert made.scale() > 0, f"{name}: scale must be positive"
    brought = tuple(sorted(made.extra_tensors(head)))
    assert brought == tuple(sorted(representation.extras)), f"{name}: extras are {brought}"


def check_backbone(backbone: type[Backbone], variant: str = "") -> None:
    """Check a backbone: a seed decides its weights, and it gives each image a finite vector (D).

    Raises:
        AssertionError: it does not; the message says what.
    """
    made = backbone(variant)
    name, transform = made.called, made.transform
    side = transform.size if transform else SIZE * 4
    with _global_state_kept(name):
        one, two = made.fresh(0).eval(), made.fresh(0).eval()
    for (key, first), second in zip(
        one.state_dict().items(), two.state_dict().values(), strict=True
    ):
        assert torch.equal(first, second), f"{name}: {key} is not drawn from the global generator"
    images = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = one(images)
        alone = one(images[:1])
    assert tuple(features.shape) == (2, made.dim), (
        f"{name}: two images give {tuple(features.shape)}, not (2, {made.dim})"
    )
    assert bool(torch.isfinite(features).all()), f"{name}: features are not finite"
    assert torch.allclose(features[:1], alone, atol=1e-4, rtol=1e-3), (
        f"{name}: an image's features depend on the images beside it"
    )


def _pretrained(method: type[Method], params: Any) -> Tensors:
    """Return what a method learns from base data alone, having checked that it does so twice."""
    if not method.has_pretraining():
        return {}
    first, second = (
        method(params, task.context(method)).pretrain(task.session(0), lambda _: None)
        for task in (ToyTask(needs=method.needs), ToyTask(needs=method.needs))
    )
    assert set(first) == set(second), f"{method.name}: two pretrainings differ in their names"
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), f"{method.name}: two pretrainings differ, {name}"
    return first


def start(task: ToyTask, method: type[M], params: Any, pretrained: Tensors | None = None) -> M:
    """Return a method that has its pretraining (made here if not given) but no session yet."""
    made = method(params, task.context(method))
    if method.has_pretraining():
        found = pretrained or made.pretrain(task.session(0), lambda _: None)
        made.load_pretrained({name: tensor.clone() for name, tensor in found.items()})
    return made


def learnt(
    method: type[M],
    params: Mapping[str, Any] | None = None,
    shot: int = 3,
    sessions: int = SESSIONS,
) -> M:
    """Return a method that has learnt a toy task's base session and so many few-shot sessions."""
    task = ToyTask(shot, needs=method.needs)
    values = parse_params(f"method {method.name!r}", method.Params, params or {})
    made = start(task, method, values)
    for number in range(sessions + 1):
        learn(made, task.session(number))
    return made


def learn(method: Method, session: Session) -> None:
    """Let a method learn a session, check that it changed nothing, then spoil what it was handed.

    A method that kept a reference instead of learning is thereby found out.
    """
    before = [tensor.clone() for tensor in _tensors(session)]
    (method.learn_session if session.index else method.learn_base)(session)
    for old, tensor in zip(before, _tensors(session), strict=True):
        assert torch.equal(old, tensor), f"{method.name}: changed the samples it was handed"
        tensor.zero_()


def _learn_all(
    task: ToyTask, method: type[Method], params: Any, pretrained: Tensors
) -> list[torch.Tensor]:
    made = start(task, method, params, pretrained)
    scores = []
    for number in range(SESSIONS + 1):
        session = task.session(number)
        learn(made, session)
        found = made.scores(task.queries()).detach().clone()
        expected = (task.query_count, session.classes_seen)
        assert tuple(found.shape) == expected, (
            f"{method.name}: scores have shape {tuple(found.shape)}, not {expected} "
            f"(queries, classes seen) in session {number}"
        )
        assert bool(torch.isfinite(found).all()), f"{method.name}: scores are not finite"
        scores.append(found)
    return scores


def _check_round_trip(
    task: ToyTask,
    method: type[Method],
    params: Any,
    pretrained: Tensors,
    scores: list[torch.Tensor],
) -> None:
    made = start(task, method, params, pretrained)
    for number in range(SESSIONS + 1):
        learn(made, task.session(number))
        state = {name: tensor.detach().contiguous() for name, tensor in made.state_dict().items()}
        saved = load_safetensors(save_safetensors({k: v.clone() for k, v in state.items()}))
        size = sum(tensor.numel() * tensor.element_size() for tensor in saved.values())
        assert made.state_bytes() == size, (
            f"{method.name}: reports {made.state_bytes()} stored bytes, saves {size}"
        )
        # A network of other weights shows whether the state holds all that was learnt.
        made = method(params, task.context(method, network_seed=1))
        try:
            made.load_state_dict(saved)
            found = made.scores(task.queries())
        except Exception as error:
            raise AssertionError(
                f"{method.name}: cannot score after its state is saved and loaded "
                f"({type(error).__name__}: {error}); state_dict must hold all that it needs"
            ) from error
        assert torch.equal(found, scores[number]), (
            f"{method.name}: scores change when its state is saved and loaded, session {number}"
        )


def _check_queries(task: ToyTask, method: type[Method], params: Any, pretrained: Tensors) -> None:
    made = start(task, method, params, pretrained)
    learn(made, task.session(0))
    queries = task.queries()
    whole = made.scores(queries).detach()
    order = torch.randperm(len(queries), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(made.scores(_pick(queries, order)), whole[order], atol=1e-4), (
        f"{method.name}: the order of the queries changes their scores"
    )
    parts = [
        made.scores(_pick(queries, part)) for part in torch.split(torch.arange(len(queries)), 5)
    ]
    assert torch.allclose(torch.cat(parts), whole, atol=1e-4), (
        f"{method.name}: the number of queries scored together changes their scores"
    )


def _check_episodes(task: ToyTask, method: type[Method], params: Any, pretrained: Tensors) -> None:
    made = start(task, method, params, pretrained)
    learn(made, task.session(0))
    state = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    found = []
    for number in (0, 1, 0):
        shots, queries = task.episode(number)
        before = [tensor.clone() for tensor in _tensors(shots)]
        scores = made.episode_scores(shots, queries).detach().clone()
        expected = (len(queries), shots.way)
        assert tuple(scores.shape) == expected, (
            f"{method.name}: scores of an episode have shape {tuple(scores.shape)}, not "
            f"{expected} (queries, way)"
        )
        assert bool(torch.isfinite(scores).all()), (
            f"{method.name}: scores of an episode are not finite"
        )
        for old, tensor in zip(before, _tensors(shots), strict=True):
            assert torch.equal(old, tensor), f"{method.name}: changed the shots of an episode"
        found.append(scores)
    assert torch.equal(found[0], found[2]), (
        f"{method.name}: an episode's scores depend on the episodes before it"
    )
    after = made.state_dict()
    for name, tensor in state.items():
        assert name in after and torch.equal(tensor, after[name]), (
            f"{method.name}: an episode changed {name!r} of its state"
        )


@contextmanager
def _global_state_kept(name: str) -> Iterator[None]:
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    yield
    kept = torch.equal(before[0], torch.get_rng_state())
    kept &= bool(np.array_equal(before[1], np.random.get_state()[1]))  # type: ignore[index]  # noqa: NPY002
    assert kept, f"{name}: draws from the global random state; use context.random"


def _tensors(session: Session) -> list[torch.Tensor]:
    tensors = [session.labels, *session.views.values()]
    return tensors if session.images is None else [*tensors, session.images]


def _pick(queries: Queries, indices: torch.Tensor) -> Queries:
    images = None if queries.images is None else queries.images[indices]
    return Queries({view: x[indices] for view, x in queries.views.items()}, images)


def _pixels(images: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    pixels = images.permute(0, 3, 1, 2).float() / 255 - 0.5
    if generator is not None:
        pixels = pixels + 0.05 * torch.randn(pixels.shape, generator=generator)
    return pixels
