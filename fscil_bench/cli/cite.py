"""`fscil-bench cite`: BibTeX of the suite, and of the papers that plug-ins come from."""

from __future__ import annotations

from typing import Annotated

import typer

from fscil_bench import __version__
from fscil_bench.cli.options import command, show
from fscil_bench.errors import UsageError, nearest
from fscil_bench.options import Options
from fscil_bench.plugins.registry import load_registry

SUITE = f"""@misc{{fscilbench,
  author = {{{{fscil-bench contributors}}}},
  title = {{fscil-bench: few-shot class-incremental learning, measured on equal terms}},
  note = {{Version {__version__}}}
}}"""


@command(only=("plugins",))
def cite(
    options: Options,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Methods and representations. (default: all)"),
    ] = None,
) -> None:
    """Show BibTeX of the suite and of methods and representations, each paper once."""
    registry = load_registry(options.plugin_files)
    kinds = ("method", "representation")
    known = [registry.get(kind, name) for kind in kinds for name in registry.names(kind)]
    for name in names or ():
        if name not in {plugin.name for plugin in known}:
            hint = nearest(name, {plugin.name for plugin in known})
            raise UsageError(f"unknown method or representation {name!r}; {hint}")
    meant = [plugin.bibtex for plugin in known if not names or plugin.name in names]
    show("\n\n".join(dict.fromkeys([SUITE, *filter(None, meant)])))
