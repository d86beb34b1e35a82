from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fscil_bench.methods.episodic import attention as module
from fscil_bench.methods.episodic.attention import GraphAttention, adapted_cosines

DIM = 6


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def graph(layer_norm: bool = True) -> GraphAttention:
    return GraphAttention(DIM, layer_norm, generator())


def samples(count: int, seed: int) -> torch.Tensor:
    return 3 * torch.rand(count, DIM, generator=generator(seed))


def by_sets(
    attention: GraphAttention, prototypes: torch.Tensor, query: torch.Tensor
) -> list[float]:
    """Self-attention over the set {prototypes, query}, written out without any sharing."""
    members = torch.cat([prototypes, query[None]])
    asked, keys, values = (
        members @ weight.T for weight in (attention.query, attention.key, attention.value)
    )
    attended = torch.softmax(asked @ keys.T / DIM**0.5, dim=1) @ values
    adapted = attention.norm(members + attended @ attention.output.T + attention.bias)
    return F.cosine_similarity(adapted[-1:], adapted[:-1]).tolist()


@pytest.mark.parametrize("layer_norm", [True, False])
def test_shared_prototypes_give_what_each_set_alone_gives(layer_norm: bool) -> None:
    attention, prototypes, queries = graph(layer_norm), samples(5, 1), samples(4, 2)
    if layer_norm:  # as training leaves it: neither ones nor zeros
        torch.nn.init.uniform_(attention.norm.weight, 0.5, 1.5, generator=generator(3))
        torch.nn.init.normal_(attention.norm.bias, generator=generator(4))
    found = attention(prototypes, queries)
    for row, query in zip(found, queries, strict=True):
        assert row.tolist() == pytest.approx(by_sets(attention, prototypes, query), abs=1e-5)


def test_lines_have_the_products_of_the_vectors_they_stand_for() -> None:
    start, away, towards = samples(3, 1), samples(3, 2), samples(4, 3)
    share = torch.rand(4, 3, generator=generator(4))
    lines = module.Lines(start, away, towards, share)
    vectors = start + share[:, :, None] * (towards[:, None] - away)
    torch.testing.assert_close(lines.squared(), vectors.square().sum(dim=2))
    other = samples(4, 5)
    torch.testing.assert_close(lines.dot(other), (vectors * other[:, None]).sum(dim=2))
    centred = vectors - vectors.mean(dim=2, keepdim=True)
    torch.testing.assert_close(lines.centred().squared(), centred.square().sum(dim=2))
    factors = samples(1, 6)[0]
    torch.testing.assert_close(
        lines.scaled(factors).squared(), (factors * vectors).square().sum(dim=2)
    )


def test_a_zero_output_map_without_layer_norm_is_the_cosine() -> None:
    attention, prototypes, queries = graph(layer_norm=False), samples(5, 1), samples(4, 2)
    torch.nn.init.zeros_(attention.output)
    torch.nn.init.zeros_(attention.bias)
    expected = F.normalize(queries, dim=1) @ F.normalize(prototypes, dim=1).T
    torch.testing.assert_close(attention(prototypes, queries), expected)


def test_chunks_do_not_change_the_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    attention, prototypes, queries = graph(), samples(5, 1), samples(7, 2)
    whole = adapted_cosines(attention, prototypes, queries)
    monkeypatch.setattr(module, "CHUNK_BYTES", 4 * 8 * (5 + DIM) * 3)
    torch.testing.assert_close(adapted_cosines(attention, prototypes, queries), whole)
