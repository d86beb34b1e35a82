from __future__ import annotations

from typing import Any

import torch

from fscil_bench.methods.finetune import Finetune
from fscil_bench.testing import BASE, SESSIONS, WAY, ToyTask


def finetuned(**params: Any) -> tuple[Finetune, list[torch.Tensor]]:
    task = ToyTask()
    method = Finetune(Finetune.Params(**params), task.context(Finetune))
    method.learn_base(task.session(0))
    scores = [method.scores(task.queries())]
    for number in range(1, SESSIONS + 1):
        method.learn_session(task.session(number))
        scores.append(method.scores(task.queries()))
    return method, scores


def test_rate_zero_leaves_old_logits_unchanged() -> None:
    _, scores = finetuned(lr=0.0, batch_norm="frozen", epochs=2)
    torch.testing.assert_close(scores[-1][:, :BASE], scores[0])


def test_predictions_move_to_the_newest_classes() -> None:
    for head in ("linear", "cosine"):
        _, scores = finetuned(epochs=40, lr=0.1, head=head)
        newest = scores[-1].argmax(1) >= BASE + WAY * (SESSIONS - 1)
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
