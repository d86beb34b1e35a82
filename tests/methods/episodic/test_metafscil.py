"""MetaFSCIL: the gradient through inner steps, gates, sequences, and what a session changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.errors import FscilError
from fscil_bench.methods._shared.cosine import cosine_logits
from fscil_bench.methods.episodic.metafscil import (
    Gate,
    MetaFscil,
    Modulated,
    adaptable,
    adapted,
    sequence,
    warmed,
)
from fscil_bench.testing import BASE, SESSIONS, WAY, ToyTask, learnt

SMALL = {"epochs": 1, "support": 8, "queries": 4, "shots": 3}
SCALE, RATE, STEPS = 4.0, 0.1, 3


class Smooth(nn.Module):
    """A network that can be differentiated twice, and by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.sin(1 + torch.arange(12.0)).view(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.weight.T)


def model(gates: list[int]) -> Modulated:
    made = Modulated(Smooth(), gates, torch.Generator().manual_seed(0))
    for gate in made.gates:
        assert isinstance(gate, Gate)
        with torch.no_grad():
            gate.out.weight.copy_(torch.cos(torch.arange(8.0)).view(4, 2))
            gate.into.bias.add_(2)  # away from the kink
    return made


def outer_loss(made: Modulated, second: bool = True) -> torch.Tensor:
    """Return the loss of queries after inner steps on shots."""
    shots, queries = (torch.cos(phase + torch.arange(18.0)).view(6, 3) for phase in (0.0, 0.5))
    rows = torch.sin(0.7 * torch.arange(12.0)).view(3, 4)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    params, rows = adapted(
        *(made, adaptable(made), rows, shots, labels, STEPS, RATE, SCALE), second=second
    )
    features = torch.func.functional_call(made, params, (queries,))
    return F.cross_entropy(cosine_logits(features, rows, SCALE), labels)


@pytest.mark.parametrize("gates", [[], [4]])
def test_the_outer_gradient_goes_through_the_inner_steps(gates: list[int]) -> None:
    made = model(gates)
    outer_loss(made).backward()  # type: ignore[no-untyped-call]
    for parameter in made.parameters():
        assert parameter.grad is not None
        flat, found = parameter.data.view(-1), parameter.grad.view(-1)
        for place in range(0, len(flat), 3):
            sides = []
            for step in (1e-3, -2e-3):
                flat[place] += step
                sides.append(float(outer_loss(made).detach()))
            flat[place] += 1e-3
            assert float(found[place]) == pytest.approx((sides[0] - sides[1]) / 2e-3, abs=3e-3)


def test_a_first_order_gradient_is_that_at_the_end_of_the_steps() -> None:
    made = model([])
    outer_loss(made, second=False).backward()  # type: ignore[no-untyped-call]
    weight = made.backbone.weight
    first = weight.grad.clone()  # type: ignore[union-attr,operator]
    weight.grad = None  # type: ignore[union-attr,assignment]
    outer_loss(made).backward()  # type: ignore[no-untyped-call]
    assert not torch.allclose(weight.grad, first, rtol=1e-2)  # type: ignore[union-attr,arg-type]


def test_an_inner_step_is_a_gradient_step_of_network_and_rows() -> None:
    made, x = model([]), torch.cos(torch.arange(6.0)).view(2, 3)
    rows = torch.sin(torch.arange(8.0)).view(2, 4).requires_grad_()
    weight = made.backbone.weight
    labels = torch.tensor([1, 0])
    F.cross_entropy(cosine_logits(made(x), rows, SCALE), labels).backward()  # type: ignore[no-untyped-call]
    params, moved = adapted(made, adaptable(made), rows, x, labels, 1, RATE, SCALE, second=False)
    assert rows.grad is not None
    torch.testing.assert_close(moved, rows - RATE * rows.grad)
    expected = weight - RATE * weight.grad  # type: ignore[union-attr,operator]
    torch.testing.assert_close(params["backbone.weight"], expected)


def test_no_steps_change_nothing() -> None:
    made, rows = model([]), torch.rand(3, 4)
    start = adaptable(made)
    params, same = adapted(
        *(made, start, rows, torch.rand(2, 3), torch.tensor([0, 1]), 0, RATE, SCALE), second=True
    )
    assert torch.equal(same, rows) and params["backbone.weight"] is start["backbone.weight"]


def test_gates_are_one_at_first_and_then_see_activations_and_weights() -> None:
    x = torch.rand(5, 3)
    fresh = Modulated(Smooth(), [4], torch.Generator().manual_seed(0))
    assert torch.equal(fresh(x), fresh.backbone(x))
    made = model([4])
    gate, features = made.gates[0], made.backbone(x)
    assert isinstance(gate, Gate)
    magnitudes = made.backbone.weight.abs().mean(dim=1)  # type: ignore[union-attr,operator]
    hidden = torch.relu(gate.into(torch.cat([features, magnitudes.expand(5, 4)], dim=1)))
    torch.testing.assert_close(made(x), features * 2 * torch.sigmoid(gate.out(hidden)))
    # The weights that it sees are those that the inner steps have made.
    half = {"backbone.weight": 0.5 * made.backbone.weight}  # type: ignore[operator]
    seen = torch.func.functional_call(made, half, (2 * x,))
    hidden = torch.relu(gate.into(torch.cat([features, magnitudes.expand(5, 4) / 2], dim=1)))
    torch.testing.assert_close(seen, features * 2 * torch.sigmoid(gate.out(hidden)))


def test_a_gate_looks_at_means_of_maps() -> None:
    gate, maps = model([4]).gates[0], torch.rand(2, 4, 3, 3)
    means, weights = maps.mean(dim=(2, 3)), torch.rand(4)
    factors = gate(means, weights) / means
    torch.testing.assert_close(gate(maps, weights), maps * factors[:, :, None, None])


@pytest.mark.parametrize(
    ("classes", "ways", "sessions", "base", "way", "count"),
    [(60, 5, 8, 20, 5, 8), (100, 10, 8, 40, 10, 6), (6, 5, 8, 2, 2, 2), (2, 5, 8, 1, 1, 1)],
)
def test_a_sequence_has_every_class_once(
    classes: int, ways: int, sessions: int, base: int, way: int, count: int
) -> None:
    first, later = sequence(classes, ways, sessions, torch.Generator().manual_seed(0))
    assert len(first) == base and [len(new) for new in later] == [way] * count
    assert sorted(first + [c for new in later for c in new]) == list(range(classes))


def test_warming_up_is_descent_of_the_new_rows_alone() -> None:
    features, labels = torch.rand(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])
    rows = torch.ones(3, 4)

    def loss(rows: torch.Tensor) -> float:
        return float(F.cross_entropy(cosine_logits(features, rows, SCALE), labels))

    assert loss(warmed(rows, features, labels, 20, 0.1, SCALE)) < loss(rows) - 0.01
    assert torch.equal(warmed(rows, features, labels, 0, 0.1, SCALE), rows)


def made(sessions: int = SESSIONS, **params: Any) -> MetaFscil:
    return learnt(MetaFscil, SMALL | params, sessions=sessions)


@pytest.mark.parametrize("modulated", [True, False])
def test_without_steps_it_is_nearest_class_mean_of_what_was_learnt(modulated: bool) -> None:
    found = made(steps=0, warm_up=0, modulated=modulated)
    task, means = ToyTask(needs=MetaFscil.needs), []
    pixels = found.network.test_pixels
    with torch.no_grad():
        for session in map(task.session, range(SESSIONS + 1)):
            assert session.images is not None
            features = found.model(pixels(session.images))
            means += [features[session.labels == c].mean(dim=0) for c in session.class_ids]
        queries = task.queries()
        assert queries.images is not None
        logits = cosine_logits(found.model(pixels(queries.images)), torch.stack(means), 16.0)
    torch.testing.assert_close(found.scores(queries), logits, atol=1e-4, rtol=1e-4)
    assert len(found.model.gates) == 2 * modulated


def test_a_session_changes_network_and_rows_but_not_gates_and_statistics() -> None:
    before, after = made(0, lr=0.05), made(1, lr=0.05)
    assert after.rows.shape[0] == BASE + WAY
    assert not torch.equal(before.rows, after.rows[:BASE])
    for name, tensor in before.model.state_dict().items():
        learns = name.startswith("backbone.") and "running" not in name and "num" not in name
        assert torch.equal(tensor, after.model.state_dict()[name]) != learns, name


def test_the_outer_loop_trains_network_and_gates() -> None:
    before = ToyTask(needs=MetaFscil.needs).context(MetaFscil).network
    assert before is not None
    found = made(0, epochs=2)
    assert not torch.equal(
        before.backbone.state_dict()["conv.weight"],
        found.model.backbone.state_dict()["conv.weight"],
    )
    assert all(bool(gate.out.weight.any()) for gate in found.model.gates)  # type: ignore[union-attr,operator]


def test_no_query_is_among_the_images_of_a_row() -> None:
    task, shown = ToyTask(needs=MetaFscil.needs), list[set[bytes]]()
    context = task.context(MetaFscil)
    network = context.network
    assert network is not None

    def seen(images: torch.Tensor) -> torch.Tensor:
        shown.append({image.numpy().tobytes() for image in images})
        return network.test_pixels(images)

    watched = replace(context, network=replace(network, test_pixels=seen))
    made, base = MetaFscil(MetaFscil.Params(**SMALL | {"warm_up": 0}), watched), task.session(0)
    assert base.images is not None
    made.pretrain(replace(base, images=torch.randint(256, base.images.shape).byte()), print)
    _, means, *rest, rows = shown  # the gates' widths; a sequence; the rows of what was learnt
    queries, shots = rest[1::2], rest[::2]
    assert len(queries) == len(shots) > 0
    for number, asked in enumerate(queries):
        assert asked.isdisjoint(means.union(*shots[: number + 1]))
    assert len(rows) == len(base.labels)


@pytest.mark.parametrize("name", ["meta_lr", "warm_up_lr", "lr"])
def test_the_rate_that_spoils_the_meta_stage_is_named_in_its_first_sequence(name: str) -> None:
    with pytest.raises(FscilError, match=rf"diverges in sequence 1 .*; lower {name} = 1e\+30$"):
        made(0, **{name: 1e30})
