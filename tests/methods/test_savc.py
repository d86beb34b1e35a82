"""SAVC: virtual classes, the contrast, queue and momentum encoder, and the released code's loss.

Numbers of the released code are those of commit 1543c9c on sines.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.methods.ncm import NCM, Cosine
from fscil_bench.methods.savc import (
    Savc,
    SavcHead,
    SavcRepresentation,
    contrast,
    transformed,
    virtual_labels,
)
from fscil_bench.protocol import Queries, Session
from fscil_bench.representation import TrainingBatch
from fscil_bench.testing import ToyTask, learnt

DIM, PROJECTION, KEYS, CLASSES, BATCH = 4, 3, 16, 3, 4


def wave(*shape: int, phase: float) -> torch.Tensor:
    return torch.sin(0.37 * torch.arange(math.prod(shape)) + phase).view(shape)


class Encoder(nn.Module):
    """Images of any size, averaged to 2 × 2 and mapped linearly."""

    def __init__(self, phase: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(wave(DIM, 12, phase=phase))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_avg_pool2d(x, 2).flatten(1) @ self.weight.T


def set_projector(projector: nn.Module, phase: float) -> None:
    tensors = projector.state_dict()
    for number, tensor in enumerate(tensors.values()):
        tensor.copy_(wave(*tensor.shape, phase=phase + number / 2))


def made(**params: Any) -> SavcRepresentation:
    settings = {"projection": PROJECTION, "keys": KEYS, "momentum": 0.9, **params}
    return SavcRepresentation(SavcRepresentation.Params(**settings))


def prepared(representation: SavcRepresentation, backbone: nn.Module) -> SavcHead:
    head = representation.build_head(DIM, CLASSES, torch.Generator().manual_seed(0))
    assert isinstance(head, SavcHead)
    representation.begin(backbone, head)
    with torch.no_grad():
        head.rows.weight.copy_(wave(*head.rows.weight.shape, phase=0.2))
        set_projector(head.projector, 0.3)
        set_projector(head.key_projector, 0.45)
        head.key_backbone.load_state_dict({"weight": wave(DIM, 12, phase=0.15)})
        head.queue.copy_(F.normalize(wave(PROJECTION, KEYS, phase=0.7), dim=0).T)
        head.queue_labels.copy_(torch.tensor([-1, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, -1, -1, 0]))
        head.place.fill_(12)
    return head


def batch() -> TrainingBatch:
    """Return images, and views in the order query, key, small crops."""
    large = [wave(BATCH, 3, 4, 4, phase=p) for p in (0.9, 1.0)]
    views = iter([*large, *(wave(BATCH, 3, 2, 2, phase=1.1 + i) for i in range(4))])
    images, labels = wave(BATCH, 3, 4, 4, phase=0.8), torch.tensor([0, 2, 1, 2])
    return TrainingBatch(images, labels, 0, lambda _: next(views), torch.Generator())


def loss(**params: Any) -> float:
    representation, backbone = made(**params), Encoder(0.1)
    head = prepared(representation, backbone)
    return float(representation.loss(backbone, head, batch()).detach())


def test_loss_gradients_and_queue_are_the_released_ones() -> None:
    representation, backbone = made(), Encoder(0.1)
    head = prepared(representation, backbone)
    found = representation.loss(backbone, head, batch())
    found.backward()  # type: ignore[no-untyped-call]
    assert float(found.detach()) == pytest.approx(12.868758, rel=1e-5)
    trained = [backbone.weight, head.projector[0].weight, head.projector[2].weight]
    norms = [float(x.grad.norm()) for x in (*trained, head.rows.weight) if x.grad is not None]
    assert norms == pytest.approx([14.11666, 1.1268536, 1.401688, 6.4003053], rel=1e-4)
    assert head.queue_labels.tolist() == [2, 3, 4, 5, 3, 4, 5, 0, 1, 2, 3, 4, 0, 1, 4, 5]
    assert head.queue[13].tolist() == pytest.approx([0.7960911, -0.1853584, -0.5760913], rel=1e-5)
    assert int(head.place) == 4
    assert float(head.key_backbone.weight.norm()) == pytest.approx(4.947037, rel=1e-5)
    assert all(x.grad is None for x in head.key_backbone.parameters())


def test_the_parts_of_the_loss_are_the_released_ones() -> None:
    classified = loss(alpha=0, beta=0)
    assert classified == pytest.approx(4.1060562, rel=1e-5)
    assert loss(alpha=1, beta=0) - classified == pytest.approx(8.9981613, rel=1e-5)
    assert loss(alpha=0, beta=1) - classified == pytest.approx(8.7038374, rel=1e-5)
    assert loss(order="aligned") != pytest.approx(loss(), rel=1e-3)


def test_without_virtual_classes_and_contrast_it_is_cosine() -> None:
    representation, backbone = made(fantasy="none", alpha=0, beta=0), Encoder(0.1)
    head = representation.build_head(DIM, CLASSES, torch.Generator().manual_seed(0))
    assert isinstance(head, SavcHead)
    expected = Cosine(Cosine.Params()).loss(backbone, head.rows, batch())
    assert torch.equal(representation.loss(backbone, head, batch()), expected)


def test_the_contrast_in_closed_form() -> None:
    # Cosines 1 with its own key, 1 and 0 with keys of its class, 0 and −1 with others; T = 1.
    query, key = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[1.0, 0.0]])
    queue = torch.tensor([[1.0, 0], [0, 1.0], [0, 1.0], [-1.0, 0]])
    labels, queued = torch.tensor([4]), torch.tensor([4, 4, 5, -1])
    negatives = 1 + math.exp(-1)
    each = [math.log(1 + negatives * math.exp(-s)) for s in (1, 1, 0)]
    found = float(contrast(query, key, labels, queue, queued, 1.0))
    assert found == pytest.approx(sum(each) / 3)


@pytest.mark.parametrize(
    ("fantasy", "ways"),
    [("none", 1), ("rotation2", 2), ("rotation4", 4), ("rotation4_color3", 12)],
)
def test_virtual_classes_are_numbered_class_by_class(fantasy: Any, ways: int) -> None:
    images = torch.rand(2, 3, 4, 4)
    shown = transformed(images, fantasy)
    assert made(fantasy=fantasy).ways == ways and len(shown) == 2 * ways
    assert torch.equal(shown[::ways], images)
    assert len({tuple(x.flatten().tolist()) for x in shown}) == 2 * ways
    labels = virtual_labels(torch.tensor([3, 0]), ways)
    assert labels.tolist() == [*range(3 * ways, 4 * ways), *range(ways)]


def test_transforms_turn_first_and_then_change_colours() -> None:
    image = torch.rand(1, 3, 2, 2)
    shown = transformed(image, "rotation4_color3")
    assert torch.equal(shown[4], torch.rot90(image, 1, dims=(2, 3))[0, [1, 2, 0]])
    assert torch.equal(transformed(image, "rotation2")[1], image[0].flip(1, 2))


def test_a_batch_longer_than_the_queue_leaves_its_last_keys() -> None:
    head = SavcHead(DIM, CLASSES, 2, 3, torch.Generator())
    head.enqueue(torch.arange(10.0).view(5, 2), torch.arange(5))
    assert head.queue_labels.tolist() == [2, 3, 4] and int(head.place) == 0
    head.enqueue(torch.zeros(1, 2), torch.tensor([7]))
    assert head.queue_labels.tolist() == [7, 3, 4] and int(head.place) == 1


def test_crops_are_of_the_sizes_asked_for_and_rows_are_of_plain_images() -> None:
    sizes = []

    def augment(operations: Any) -> torch.Tensor:
        images = torch.randint(256, (BATCH, 32, 32, 3), dtype=torch.uint8)
        shown = operations[0](images, torch.Generator().manual_seed(1))
        assert 0 <= float(shown.min()) < float(shown.max()) <= 255
        sizes.append(shown.shape[1])
        return shown.permute(0, 3, 1, 2)

    representation, backbone = made(), Encoder(0.1)
    head = prepared(representation, backbone)
    images, labels = torch.rand(BATCH, 3, 32, 32), torch.tensor([0, 2, 1, 2])
    given = TrainingBatch(images, labels, 0, augment, torch.Generator().manual_seed(0))
    assert bool(torch.isfinite(representation.loss(backbone, head, given)))
    assert sizes == [32, 32, 18, 18, 18, 18]
    assert torch.equal(representation.classifier(head), head.rows.weight[[0, 2, 4]])


def test_equal_views_are_nearest_class_mean() -> None:
    task = ToyTask(queries=50)

    def doubled(samples: Any) -> dict[str, torch.Tensor]:
        return {"plain": samples.features, "rot180": samples.features}

    method = learnt(Savc, sessions=0)
    for number in range(3):
        session = task.session(number)
        fields = {k: v for k, v in vars(session).items() if k != "views"}
        given = Session(views=doubled(session), **fields)
        (method.learn_session if number else method.learn_base)(given)
    queries = task.queries()
    found = method.scores(Queries(doubled(queries)))
    torch.testing.assert_close(found, learnt(NCM).scores(queries), atol=1e-5, rtol=1e-5)


def test_scores_are_the_mean_over_both_views() -> None:
    method = learnt(Savc)
    queries = ToyTask(needs=Savc.needs).queries()
    views = [queries.views[v] for v in ("plain", "rot180")]
    each = [
        F.cosine_similarity(v[:, None], p[None], dim=2)
        for v, p in zip(views, method.prototypes, strict=True)
    ]
    torch.testing.assert_close(method.scores(queries), (each[0] + each[1]) / 2)
