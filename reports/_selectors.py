"""Table rows chosen by what tells them apart, written as their labels are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fscil_bench.errors import UsageError, nearest
from fscil_bench.plugins.registry import Registry
from fscil_bench.spec import RunSpec

from ._rows import Row, relabelled

HOW = (
    "write METHOD [REPRESENTATION] (name=value, name=value), several with ; between; "
    "brackets may be left away"
)
_FORM = re.compile(r"([^\s\[(]+)\s*(?:\[([^\]]*)\])?\s*(?:\((.*)\))?")
# Labels write lists as [64,32]: a comma inside brackets ends no entry.
_COMMA = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True)
class Selector:
    """What a row must have: a method, perhaps a representation, and values as labels write them."""

    text: str
    method: str
    representation: str | None
    values: Mapping[str, str]
    representation_values: Mapping[str, str]

    def fits(self, spec: RunSpec) -> bool:
        """Whether a row of this specification is meant."""
        brought = spec.representation
        return (
            spec.method == self.method
            and self.representation in (None, brought.name)
            and _agree(self.values, _row_values(spec))
            and _agree(self.representation_values, brought.params)
        )


def chosen_rows(rows: Sequence[Row], text: str, registry: Registry) -> list[Row]:
    """Return the rows that `text` names, under the shortest labels that tell them apart.

    Args:
        rows: to choose from.
        text: selectors with `;` between; empty chooses all rows.
        registry: tells the defaults, for labels.

    Raises:
        UsageError: a selector cannot be read, or fits no row; the rows are named.
    """
    chosen: list[Row] = list(rows)
    if text.strip():
        found: dict[str, Row] = {}
        for part in filter(None, (part.strip() for part in text.split(";"))):
            found |= {row.label: row for row in _fitting(part, rows)}
        chosen = [row for row in rows if row.label in found]
    return relabelled(chosen, registry)


def parse_selector(text: str) -> Selector:
    """Return the selector of `METHOD [REPRESENTATION, name=value] (name=value, ...)`.

    Raises:
        UsageError: it is not written so.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"cannot read {text!r} as a table row: {HOW}")
    method, brought, settings = found.groups()
    name, _, inner = (brought or "").partition(",")
    representation = name.strip() or None
    return Selector(text, method, representation, _values(settings or ""), _values(inner))


def _fitting(text: str, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that a selector means: those it fits, or the one whose label it is."""
    same = [row for row in rows if row.label == text]
    if same:
        return same
    selector = parse_selector(text)
    _check(selector, rows)
    found = [row for row in rows if selector.fits(row.spec)]
    if not found:
        listed = "\n  ".join(row.label for row in rows if row.spec.method == selector.method)
        raise UsageError(f"no stored row fits {text!r}; the rows of its method are\n  {listed}")
    return found


def _check(selector: Selector, rows: Sequence[Row]) -> None:
    """Refuse names that no row has.

    Raises:
        UsageError: there is one; the nearest known are named.
    """
    methods = [row.spec.method for row in rows]
    if selector.method not in methods:
        hint = nearest(selector.method, methods)
        raise UsageError(f"no stored row is of method {selector.method!r}; {hint}")
    own = [row.spec for row in rows if row.spec.method == selector.method]
    outer = {each for spec in own for each in _row_values(spec)}
    inner = {each for spec in own for each in spec.representation.params}
    for names, known in ((selector.values, outer), (selector.representation_values, inner)):
        for name in names:
            if name not in known:
                hint = nearest(name, known)
                raise UsageError(f"{selector.text!r}: no row has a value {name!r}; {hint}")


def _values(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in _COMMA.split(text))):
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not equals:
            raise UsageError(f"{entry!r} in {text!r}: {HOW}")
        found[name] = value
    return found


def _row_values(spec: RunSpec) -> dict[str, Any]:
    """Return a row's settings and parameters by the names that labels give them."""
    data = spec.model_dump(mode="json")
    protocol = data.pop("protocol")
    recipe = protocol.pop("recipe")
    whole = {**recipe, **protocol, **data, "precision": spec.representation.precision}
    return {name: v for name, v in whole.items() if not isinstance(v, dict)} | spec.params


def _agree(wanted: Mapping[str, str], values: Mapping[str, Any]) -> bool:
    return all(text in _written(values, name) for name, text in wanted.items())


def _written(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return how a value may be written: as labels do, or as on the command line."""
    if name not in values:
        return ("unset",)
    value = values[name]
    return str(value), json.dumps(value), json.dumps(value, separators=(",", ":"))
