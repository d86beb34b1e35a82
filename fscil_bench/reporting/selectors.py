"""Table rows named by what tells them apart, written as their labels are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from fscil_bench.errors import UsageError, nearest
from fscil_bench.spec import RunSpec

HOW = (
    "write METHOD [REPRESENTATION] (name=value, name=value), several with ; between; "
    "brackets may be left away"
)
_FORM = re.compile(r"([^\s\[(]+)\s*(?:\[([^\]]*)\])?\s*(?:\((.*)\))?")
# Labels write lists as [64,32]: a comma inside brackets ends no entry.
_COMMA = re.compile(r",(?![^\[]*\])")


def fitting(text: str, rows: Mapping[str, RunSpec]) -> list[str]:
    """Return the labels of the rows that `text` names; empty text names all.

    Args:
        text: selectors or labels with `;` between.
        rows: the specification of each row by label.

    Raises:
        UsageError: a selector cannot be read, or fits no row; the rows are named.
    """
    parts = [part.strip() for part in text.split(";") if part.strip()]
    named = {label for part in parts for label in _fitting(part, rows)}
    return [label for label in rows if label in named or not parts]


def _fitting(text: str, rows: Mapping[str, RunSpec]) -> list[str]:
    """Return the rows that a selector means: those it fits, or the one whose label it is."""
    if text in rows:
        return [text]
    form = _FORM.fullmatch(text)
    if form is None:
        raise UsageError(f"cannot read {text!r} as a table row: {HOW}")
    method, brought, settings = form.groups()
    name, _, rest = (brought or "").partition(",")
    outer, inner = _values(settings or ""), _values(rest)
    # A label begins with the method's title.
    own = {
        label: spec
        for label, spec in rows.items()
        if method in (spec.method, label.partition(" ")[0])
    }
    if not own:
        hint = nearest(method, {spec.method for spec in rows.values()})
        raise UsageError(f"no row here is of method {method!r}; {hint}")
    _check(text, outer, map(_row_values, own.values()))
    _check(text, inner, (spec.representation.params for spec in own.values()))
    found = [
        label
        for label, spec in own.items()
        if name.strip() in ("", spec.representation.name)
        and _agree(outer, _row_values(spec))
        and _agree(inner, spec.representation.params)
    ]
    if not found:
        listed = "\n  ".join(own)
        raise UsageError(f"no stored row fits {text!r}; the rows of its method are\n  {listed}")
    return found


def _check(text: str, wanted: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Refuse names of values that no row has."""
    known = {each for row in rows for each in row}
    for name in wanted:
        if name not in known:
            raise UsageError(f"{text!r}: no row has a value {name!r}; {nearest(name, known)}")


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
    trained = {name: getattr(spec.representation, name) for name in ("precision", "devices")}
    whole = {**recipe, **protocol, **data, **trained}
    return {name: v for name, v in whole.items() if not isinstance(v, dict)} | spec.params


def _agree(wanted: Mapping[str, str], values: Mapping[str, Any]) -> bool:
    return all(text in _written(values, name) for name, text in wanted.items())


def _written(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return how a value may be written: as labels do, or as on the command line."""
    if name not in values:
        return ("unset",)
    value = values[name]
    return str(value), json.dumps(value), json.dumps(value, separators=(",", ":"))
