"""A method and a representation that end their process, and a method that fails."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fscil_bench.methods.ncm import NCM, Cosine, NCMParams
from fscil_bench.protocol import Session
from fscil_bench.representation import TrainingBatch


def die(mark: str) -> None:
    """End this process, unless the file `mark` tells that one has been ended already."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class KilledParams(NCMParams):
    mark: str = "/"


class Killed(NCM):
    """Ends its process in session 2 of seed 1, once; `mark` remembers it."""

    name = "killed"
    Params = KilledParams

    def learn_session(self, session: Session) -> None:
        if session.index == 2 and self.context.random.axes[-1] == 1:
            die(self.params.mark)
        super().learn_session(session)


class Failing(NCM):
    """Fails with seed 1."""

    name = "failing"

    def learn_session(self, session: Session) -> None:
        if self.context.random.axes[-1] == 1:
            raise ValueError("one is not for me")
        super().learn_session(session)


class Slow(NCM):
    """Takes its time."""

    name = "slow"

    def learn_session(self, session: Session) -> None:
        time.sleep(1)
        super().learn_session(session)


class KilledTraining(Cosine):
    """Ends its process in the second epoch, once; `mark` remembers it."""

    name = "killed_training"

    @dataclass(frozen=True)
    class Params(Cosine.Params):
        mark: str = "/"

    def loss(self, backbone: Any, head: Any, batch: TrainingBatch) -> torch.Tensor:
        if batch.epoch == 1:
            die(self.params.mark)
        return super().loss(backbone, head, batch)
