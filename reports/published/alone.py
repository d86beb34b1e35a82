"""When a report shows what papers print for a protocol although nothing of it is measured yet."""

from __future__ import annotations

from dataclasses import dataclass

from fscil_bench.defaults import FIRST_METHOD
from fscil_bench.protocol import Protocol
from fscil_bench.report import Lack
from fscil_bench.reporting.choice import plain_command
from fscil_bench.reporting.frame import Results
from fscil_bench.request import Selection

from .rows import PublishedRow, published_rows


@dataclass(frozen=True)
class PublishedAlone:
    """Published rows of a protocol without stored runs, and the run that would be the first."""

    protocol: Protocol
    rows: list[PublishedRow]
    lack: Lack
    notice: str = "Nothing is measured: no run of this protocol is stored."


def published_alone(results: Results, rows: str) -> PublishedAlone | None:
    """Return what is published for the protocol asked for, or None where runs are to be shown.

    That is where some are stored, or where measured `rows`, methods, seeds or the like were asked
    for by name: who does so wants to be told that there are none.
    """
    selection, registry = results.selection, results.registry
    name = selection.protocol or ""
    by_name = rows.strip() or selection != Selection(protocol=name)
    stored = any(run.spec.protocol.name == name for run in results.runs)
    if by_name or stored or name not in registry.names("protocol"):
        return None
    protocol: Protocol = registry.get("protocol", name).value
    found = published_rows(protocol)
    if not found:
        return None
    command = plain_command(FIRST_METHOD, results, None, 0)
    return PublishedAlone(protocol, found, Lack(f"{FIRST_METHOD}, seed 0", command))
