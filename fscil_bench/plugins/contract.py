"""What every contract is: a kind of plug-in, whose complete subclasses are registered by name."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

from fscil_bench.params import NoParams


class Contract(ABC):
    """The base of the contracts: one of them sets `kind`, its subclasses `name` and `Params`."""

    kind: ClassVar[str]
    """What the contract's plug-ins are, in the words of a message: method, data set, report."""
    name: ClassVar[str]
    """What users call the plug-in."""
    title: ClassVar[str] = ""
    """What tables and figures call it, if not by its name; shown only, so not in a run's key."""
    bibtex: ClassVar[str] = ""
    """BibTeX of the paper that it comes from; likewise."""
    Params: ClassVar[type] = NoParams
    """A frozen dataclass of what a user may set, with defaults."""

    @classmethod  # noqa: B027 (most have nothing to check)
    def check_declaration(cls) -> None:
        """Refuse a plug-in that declares what does not fit together; asked when it is registered.

        Raises:
            UsageError: it does; the message goes on from the plug-in's file and class.
        """
