from __future__ import annotations

from typing import Any

import torch

from fscil_bench.methods.incremental.finetune import Finetune
from fscil_bench.testing import BASE, SESSIONS, WAY, ToyTask, learnt


def scores(sessions: int, **params: Any) -> torch.Tensor:
    return learnt(Finetune, params, sessions=sessions).scores(ToyTask().queries())


def test_rate_zero_leaves_old_logits_unchanged() -> None:
    first, last = (scores(n, lr=0.0, batch_norm="frozen", epochs=2) for n in (0, SESSIONS))
    torch.testing.assert_close(last[:, :BASE], first)


def test_predictions_move_to_the_newest_classes() -> None:
    for head in ("linear", "cosine"):
        newest = scores(SESSIONS, epochs=40, lr=0.1, head=head).argmax(1) >= BASE + WAY * (
            SESSIONS - 1
        )
        assert float(newest.float().mean()) > 0.7, head


def test_the_whole_network_is_trained_and_frozen_statistics_are_kept() -> None:
    for choice, kept in (("frozen", True), ("trained", False)):
        task = ToyTask()
        method = Finetune(Finetune.Params(epochs=3, batch_norm=choice), task.context(Finetune))
        before = {k: v.clone() for k, v in method.network.backbone.state_dict().items()}
        method.learn_base(task.session(0))
        method.learn_session(task.session(1))
        after = method.network.backbone.state_dict()
        for name in ("conv.weight", "bn.weight", "bn.bias"):
            assert not torch.equal(before[name], after[name])
        for name in ("bn.running_mean", "bn.running_var"):
            assert torch.equal(before[name], after[name]) == kept
