"""A registry with one method and one representation, so that defaults are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from fscil_bench.params import NoParams
from fscil_bench.protocol import Protocol
from fscil_bench.registry import Plugin, Registry


@dataclass(frozen=True)
class LdcParams:
    steps: int = 8
    widths: tuple[int, ...] = (64, 32)


@dataclass(frozen=True)
class FactParams:
    virtual: int = 20


class Ldc:
    Params = LdcParams


class Ncm:
    Params = NoParams


class Fact:
    Params = FactParams


@pytest.fixture
def registry(toy_protocol: Protocol) -> Registry:
    """Return a registry of two methods, a representation and the toy protocol."""
    registry = Registry()
    registry.add(Plugin("method", "ldc", Ldc, Path(__file__), "test"))
    registry.add(Plugin("method", "ncm", Ncm, Path(__file__), "test"))
    registry.add(Plugin("representation", "fact", Fact, Path(__file__), "test"))
    registry.add(Plugin("protocol", "toy", toy_protocol, Path(__file__), "test"))
    return registry
