"""Plug-ins that the engine has to name: what is meant where nothing is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REPRESENTATION = "cosine"
"""What is trained on the base session, and what labels and commands leave unsaid."""

FIRST_METHOD = "ncm"
"""What to run where nothing is stored: it takes seconds once the network is trained."""

FIRST_PROTOCOL = "glyphs"
"""What to run it on: no data are needed."""

RULER = "ncm"
"""The method under which representations are compared, and over which methods gain."""

STRONGER: Mapping[str, Any] = {"space": "tukey"}
"""The parameters of the ruler's stronger variant, beside its defaults."""
