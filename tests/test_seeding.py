from __future__ import annotations

import torch

from fscil_bench.seeding import Randomness


def test_the_same_axes_give_the_same_stream() -> None:
    one, two = Randomness(("a", 1)), Randomness(("a",)).child(1)
    assert torch.equal(
        torch.rand(5, generator=one.torch("x")), torch.rand(5, generator=two.torch("x"))
    )
    assert one.numpy("x").random() == two.numpy("x").random()


def test_axes_and_purposes_do_not_run_into_one_another() -> None:
    seeds = {
        Randomness(("a", 12)).seed("b"),
        Randomness(("a", 1)).seed("2b"),
        Randomness(("a", "12")).seed("b"),
        Randomness(("a",)).seed(12, "b", ""),
    }
    assert len(seeds) == 4


def test_a_seed_is_a_number_that_never_changes() -> None:
    # A release that changed this would change every result silently.
    assert Randomness(("shots", 0, 7)).seed() == 8492537380615617349


def test_the_global_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    torch.rand(3, generator=Randomness((0,)).torch())
    assert torch.equal(before, torch.get_rng_state())
