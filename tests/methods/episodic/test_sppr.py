"""SPPR: episodes, refinement and relation, and what the released code gives for the same inputs.

Numbers of the released code are those of commit 0df749d, run without dropout on sines.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fscil_bench.methods.episodic.sppr import (
    HIDDEN,
    Relation,
    Sppr,
    SpprHead,
    SpprRepresentation,
    dropped,
    refined,
    related,
)
from fscil_bench.representation import TrainingBatch
from fscil_bench.testing import ToyTask, learnt

DIM, CLASSES, LATENT = 4, 6, 8
ORDER = torch.tensor([4, 0, 5, 2, 1, 3])
"""Classes of the episode's shots."""


def wave(*shape: int, phase: float) -> torch.Tensor:
    return torch.sin(0.37 * torch.arange(math.prod(shape)) + phase).view(shape)


def head() -> SpprHead:
    made = SpprHead(DIM, CLASSES, LATENT, torch.Generator().manual_seed(0))
    with torch.no_grad():
        made.rows.copy_(wave(CLASSES, DIM, phase=0.1))
        made.into.copy_(torch.stack([wave(LATENT, DIM, phase=p) for p in (0.2, 0.3, 0.4)]))
        made.out.copy_(wave(DIM, LATENT, phase=0.5))
        relation = made.relation
        for number, (weight, bias) in enumerate(
            zip(relation.weights, relation.biases, strict=True)
        ):
            weight.copy_(wave(*weight.shape, phase=0.6 + number))
            bias.copy_(wave(*bias.shape, phase=0.7 + number))
        for number, norm in enumerate((relation.norm1, relation.norm2)):
            norm.weight.copy_(1 + 0.5 * wave(HIDDEN, phase=0.8 + number))
            norm.bias.copy_(wave(HIDDEN, phase=0.9 + number))
    return made


def classes_chosen(made: SpprHead, chosen: torch.Tensor, support: torch.Tensor) -> torch.Tensor:
    """Return the prototypes of an episode in which these classes are replaced."""
    representation = SpprRepresentation(SpprRepresentation.Params(attention_dropout=0))
    means = support.view(CLASSES, -1, DIM).mean(dim=1)[chosen]
    return representation._prototypes(made, means, ORDER[chosen], torch.Generator())


def test_an_episode_has_the_released_loss_and_gradients() -> None:
    made, support = head(), wave(2 * CLASSES, DIM, phase=1.1).requires_grad_()
    queries = wave(5, DIM, phase=1.2).requires_grad_()
    prototypes = classes_chosen(made, torch.tensor([2, 0, 3]), support)
    logits = made.relation(queries, prototypes, 0.0, torch.Generator())
    loss = nn.functional.cross_entropy(logits, torch.arange(5))
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == pytest.approx(3.262118, rel=1e-4)
    assert made.rows.grad is not None and made.into.grad is not None
    expected = [0.067203, 0.129925, 0.032412, -0.172322]
    assert made.rows.grad[1].tolist() == pytest.approx(expected, rel=1e-3)
    assert not made.rows.grad[[5, 4, 2]].any(), "rows that gave way learn nothing"
    gradients = (made.rows, made.out, made.relation.weights[0], queries, support)
    norms = [float(x.grad.norm()) for x in gradients if x.grad is not None]
    assert norms == pytest.approx([0.490727, 2.897779, 1.004573, 0.358104, 0.273026], rel=1e-3)
    assert float(made.into.grad[0].norm()) == pytest.approx(0.0030655, rel=1e-2)


def session_scores(base_rows: str) -> torch.Tensor:
    made = head()
    support = wave(2 * CLASSES, DIM, phase=1.1)
    prototypes = classes_chosen(made, torch.tensor([2, 0, 3]), support)
    made.relation(wave(5, DIM, phase=1.2), prototypes, 0.0, torch.Generator())
    extras = SpprRepresentation(SpprRepresentation.Params()).extra_tensors(made)
    method = Sppr(Sppr.Params(base_rows=base_rows), ToyTask(needs=Sppr.needs).context(Sppr))
    means = wave(4, DIM, phase=1.3).view(2, 2, DIM).mean(dim=1)
    method.load_state_dict(extras | {"means": means})
    layers = [extras[f"sppr_relation{number}"] for number in (1, 2, 3)]
    return related(wave(3, DIM, phase=1.4), method._prototypes(means), layers)


def test_a_session_has_the_released_scores() -> None:
    scores = session_scores("refined")
    expected = [70.78831, 76.13546, 61.70714, 59.86247, 66.21037, 76.08948, 73.60425, 60.11002]
    assert scores[0].tolist() == pytest.approx(expected, rel=1e-4)
    expected = [59.64477, 58.31738, 70.01612, 76.97407, 62.83801, 58.21386, 58.73081, 74.71194]
    assert scores[2].tolist() == pytest.approx(expected, rel=1e-4)


def test_kept_base_rows_have_the_released_scores_of_cub200() -> None:
    scores = session_scores("kept")
    expected = [72.48599, 81.40691, 61.81264, 59.30149, 62.71970, 80.54710, 73.60425, 60.11002]
    assert scores[0].tolist() == pytest.approx(expected, rel=1e-4)


def test_without_output_refinement_changes_nothing() -> None:
    rows = torch.rand(3, DIM)
    found = refined(rows, rows[:2], torch.rand(3, LATENT, DIM), torch.zeros(DIM, LATENT))
    assert torch.equal(found, rows)


def test_attention_looks_at_kept_rows_twice() -> None:
    into, out = torch.stack([torch.eye(2)] * 3), torch.eye(2)
    into[0] = 0  # asks alike of all: weights are 1 / (2 + 1)
    found = refined(torch.tensor([[3.0, 0], [0, 6.0]]), torch.tensor([[0.0, 3.0]]), into, out)
    assert found.tolist() == [[4, 3], [1, 9]]


def test_folded_layers_are_the_relation_in_evaluation() -> None:
    made, generator = Relation(DIM, torch.Generator().manual_seed(0)), torch.Generator()
    for phase in (0.0, 1.0, 2.0):
        made(wave(7, DIM, phase=phase), wave(5, DIM, phase=phase + 3), 0.5, generator)
    features, prototypes = wave(3, DIM, phase=5), wave(5, DIM, phase=6)
    found = related(features, prototypes, made.layers())
    torch.testing.assert_close(found, made.eval()(features, prototypes, 0.0, generator))


def test_dropped_values_are_made_up_for() -> None:
    found = dropped(torch.ones(10_000), 0.25, torch.Generator().manual_seed(0))
    assert sorted(set(found.tolist())) == pytest.approx([0, 4 / 3])
    assert float(found.mean()) == pytest.approx(1, abs=0.02)


class Flat(nn.Module):
    """Images that are features already."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)


def test_the_loss_is_the_mean_over_episodes_that_leave_base_classes() -> None:
    params = SpprRepresentation.Params(latent=LATENT, relation_dropout=0, attention_dropout=0)
    made, queries = SpprRepresentation(params), wave(5, DIM, phase=1.2).view(5, 1, 2, 2)
    asked = []

    def episode(ways: int, shots: int) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append((ways, shots))
        return wave(2 * CLASSES, 1, 2, 2, phase=1.1), ORDER

    generator = torch.Generator().manual_seed(3)
    batch = TrainingBatch(queries, torch.arange(5), 0, lambda: queries, generator, episode)
    found = float(made.loss(Flat(), head(), batch).detach())
    assert asked == [(8, 5)]
    again, expected, twin = torch.Generator().manual_seed(3), 0.0, head()
    for _ in range(3):
        chosen = torch.randperm(CLASSES, generator=again)[:5]
        prototypes = classes_chosen(twin, chosen, wave(2 * CLASSES, DIM, phase=1.1))
        logits = twin.relation(queries.flatten(1), prototypes, 0.0, again)
        expected += float(nn.functional.cross_entropy(logits, torch.arange(5)).detach()) / 3
    assert found == pytest.approx(expected, rel=1e-5)


def test_nothing_is_trained_or_drawn_in_sessions() -> None:
    made, task = learnt(Sppr), ToyTask(needs=Sppr.needs)
    means = torch.cat([task.session(t).features.view(2, 3, -1).mean(dim=1) for t in (1, 2)])
    torch.testing.assert_close(made.means, means)
    for name, tensor in task.context(Sppr).extras.items():
        assert torch.equal(made.state_dict()[name], tensor), name
