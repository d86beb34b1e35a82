"""A backbone as others have pre-trained it, taken as it is or tuned on the base classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from fscil_bench.backbone import Pool, Reading

from ._shared.cosine import CosineRepresentation
from ._shared.network import last_parts


class Pretrained(CosineRepresentation):
    """The backbone as it was pre-trained, or as `--weights FILE` has it; base rows are class means.

    What FSCIL does on pre-trained transformers (PILOT, RanPAC and their kind): nothing is trained
    unless `tuned` says so. Images are resized and normalised as the network expects.

    With `tuned` the protocol's recipe trains rows by cross-entropy on scaled cosine logits: `head`
    these alone, `last_block` also what the network ends in, `all` the whole of it. What is not
    tuned keeps its batch statistics, too.
    """

    name = "pretrained"
    pretrained = True

    @dataclass(frozen=True)
    class Params:
        """How the network is read, and what of it is tuned.

        Attributes:
            tuned: what the recipe trains on the base session.
            pool: how maps or tokens become a vector, where the backbone offers it.
            size: side of its input in pixels; 0 is its own.
            temperature: factor on the cosine.
        """

        tuned: Literal["none", "head", "last_block", "all"] = "none"
        pool: Pool = "default"
        size: Annotated[int, Field(ge=0, le=4096)] = 0
        temperature: Annotated[float, Field(gt=0)] = 16.0

    params: Params

    def reading(self) -> Reading:
        """Return how the backbone is read."""
        return Reading(self.params.pool, self.params.size)

    def is_trained(self) -> bool:
        """Return whether anything is tuned."""
        return self.params.tuned != "none"

    def tuned(self, backbone: nn.Module) -> Sequence[nn.Module]:
        """Return the parts of the backbone that are tuned."""
        if self.params.tuned == "all":
            return (backbone,)
        return last_parts(backbone) if self.params.tuned == "last_block" else ()
