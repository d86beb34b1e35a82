"""When a report shows what papers print for a protocol although nothing of it is measured yet."""

from __future__ import annotations

from dataclasses import dataclass

from fscil_bench.protocol import Protocol
from fscil_bench.report import ReportInput
from fscil_bench.request import Selection

from ._missing import plain_command
from ._one_protocol import FIRST_METHOD
from ._published import PublishedRow, published_rows


@dataclass(frozen=True)
class PublishedAlone:
    """Published rows of a protocol without stored runs, and the command that would make one."""

    protocol: Protocol
    rows: list[PublishedRow]
    command: str

    @property
    def notice(self) -> str:
        """Say that nothing was measured, and how to."""
        return f"Nothing is measured: no run of this protocol is stored. Make one: `{self.command}`"


def published_alone(given: ReportInput, rows: str) -> PublishedAlone | None:
    """Return what is published for the protocol asked for, or None where runs are to be shown.

    That is where some are stored, or where measured `rows`, methods, seeds or the like were asked
    for by name: who does so wants to be told that there are none.
    """
    name = given.selection.protocol or ""
    by_name = rows.strip() or given.selection != Selection(protocol=name)
    stored = any(run.spec.protocol.name == name for run in given.runs)
    if by_name or stored or name not in given.registry.names("protocol"):
        return None
    protocol: Protocol = given.registry.get("protocol", name).value
    found = published_rows(protocol)
    if not found:
        return None
    command = plain_command(FIRST_METHOD, given.selection, None, 0, given.registry)
    return PublishedAlone(protocol, found, command)
