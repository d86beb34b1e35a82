"""The `fscil-bench results` commands: merge, export, import and remove what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fscil_bench.cli.options import NO_TEXTS, command, parse_settings, say, show
from fscil_bench.errors import UsageError
from fscil_bench.options import Options

if TYPE_CHECKING:
    from fscil_bench.store.transfer import Moved, Piece

results_app = typer.Typer(
    no_args_is_help=True, help="Merge, export, import and remove stored results."
)
Where = Annotated[
    list[str],
    typer.Option(
        "--where",
        help="Only runs with this value: method=ldc, seed=0-4, protocol=a,b, features=FILE's name "
        "or digest, a parameter ... Repeatable; all must hold.",
    ),
]


@results_app.command()
@command()
def merge(
    sources: Annotated[list[Path], typer.Argument(help="Folders of results.")],
    out: Annotated[
        Path, typer.Option("--out", help="The folder that takes them; what it holds stays.")
    ],
) -> None:
    """Bring the results of several folders together in one.

    Runs of one key must have predicted the same. `report` draws from what comes out.
    """
    from fscil_bench.store.transfer import merge as merged

    _tell(merged({str(folder): folder for folder in sources}, out), f"into {out}")


@results_app.command()
@command(only=("results",))
def export(
    file: Annotated[Path, typer.Argument(help="The archive to write; ends in .zip.")],
    options: Options,
    where: Where = NO_TEXTS,
    networks: Annotated[
        bool, typer.Option("--networks", help="Pack the networks that runs stand on, too.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Pack runs with their predictions into a zip archive, for a paper's supplement."""
    from fscil_bench.store.transfer import NETWORKS
    from fscil_bench.store.transfer import export as exported

    if file.suffix != ".zip":
        raise UsageError(f"{file}: an archive must end in .zip")
    if file.exists() and not force:
        raise UsageError(f"{file}: is there already; --force replaces it")
    every = _pieces(options)
    found = [piece for piece in _chosen(every, where, options) if piece.kind != NETWORKS]
    if networks:
        used = {piece.spec.representation.key for piece in found if piece.spec is not None}
        found += [p for p in every if p.kind == NETWORKS and p.path.name in used]
    _tell(exported(found, file), f"in {file}")


@results_app.command(name="import")
@command(only=("results",))
def import_(
    file: Annotated[Path, typer.Argument(help="An archive that `results export` wrote.")],
    options: Options,
) -> None:
    """Take the runs of an archive into a folder of results, as `merge` would."""
    from fscil_bench.store.runs import Store
    from fscil_bench.store.transfer import take

    results = Store.of(options).results
    _tell(take(file, results), f"into {results}")


@results_app.command()
@command(only=("results",))
def remove(
    options: Options,
    where: Where,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")
    ] = False,
) -> None:
    """Remove stored runs and episodes that have certain values. Networks stay."""
    from fscil_bench.store.transfer import remove as removed

    found = _chosen(_pieces(options), where, options)
    for piece in found if dry_run else removed(found):
        show(f"{'would remove' if dry_run else 'removed'} {piece.path}")


def _pieces(options: Options) -> list[Piece]:
    from fscil_bench.store.runs import Store
    from fscil_bench.store.transfer import pieces

    remarks: list[str] = []
    found = list(pieces(Store.of(options).results, remarks))
    for remark in remarks:
        say(f"warning: {remark}")
    return found


def _chosen(found: list[Piece], where: list[str], options: Options) -> list[Piece]:
    from fscil_bench.store.runs import Store
    from fscil_bench.store.transfer import chosen

    fitting = chosen(found, parse_settings(where, "--where"))
    if not fitting:
        told = " and ".join(where)
        raise UsageError(f"no run in {Store.of(options).results}{' with ' * bool(told)}{told}")
    return fitting


def _tell(moved: Moved, where: str) -> None:
    for remark in moved.remarks:
        say(f"warning: {remark}")
    show(moved.told(where))
