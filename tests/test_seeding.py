from __future__ import annotations

import torch

from fscil_bench.seeding import Randomness


def test_the_same_axes_give_the_same_stream_and_leave_the_global_state_alone() -> None:
    before = torch.get_rng_state()
    one, two = Randomness(("a", 1)), Randomness(("a",)).child(1)
    first, second = (torch.rand(5, generator=each.torch("x")) for each in (one, two))
    assert torch.equal(first, second)
    assert one.numpy("x").random() == two.numpy("x").random()
    assert torch.equal(before, torch.get_rng_state())


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
