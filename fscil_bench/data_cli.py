"""The `fscil-bench data` commands: get, check, list and scan data, list and clear caches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fscil_bench.cli_support import (
    Cache,
    DataRoot,
    Debug,
    Plugins,
    explained,
    show,
)
from fscil_bench.errors import DataError, FscilError, UsageError

if TYPE_CHECKING:
    from fscil_bench.data import DatasetReader

data_app = typer.Typer(
    no_args_is_help=True, help="Get, check and list data sets; make a protocol of your own."
)
WEIGHTS = "resnet18"

Names = Annotated[list[str], typer.Argument(help="Data sets; see `data list`.")]


@data_app.command()
@explained
def get(
    name: Annotated[str, typer.Argument(help="A data set, or resnet18 for ImageNet weights.")],
    source: Annotated[
        Path | None, typer.Option("--from", help="Take this local archive or folder instead.")
    ] = None,
    data_root: DataRoot = None,
    unofficial_data: Annotated[
        bool,
        typer.Option("--unofficial-data", help="Take a copy that is not the published one."),
    ] = False,
    plugin: Plugins = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Fetch a data set from its published address, or take a local copy; verify it."""
    del debug
    from fscil_bench.downloads import fetch, take
    from fscil_bench.progress import for_terminal
    from fscil_bench.store import data_roots

    folder = data_roots(data_root)[0]
    if name == WEIGHTS:
        _get_weights(source)
        return
    reader = _reader(name, plugin)
    if source is not None:
        show(f"{name}: {take(reader, source, folder, unofficial_data)}")
        return
    if reader.download is None:
        raise DataError(f"{name!r} cannot be fetched. {reader.advice}".strip())
    show(f"{name}: {fetch(reader.download, folder, for_terminal())}")


@data_app.command()
@explained
def check(
    protocol: Annotated[str, typer.Argument(help="A protocol by name, or a TOML file.")],
    data_root: DataRoot = None,
    unofficial_data: Annotated[
        bool, typer.Option("--unofficial-data", help="Accept a copy that is not the published one.")
    ] = False,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out images that cannot be decoded.")
    ] = False,
    cache: Cache = None,
    plugin: Plugins = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Verify the data of a protocol and print their fingerprint, which every run records."""
    del debug
    from fscil_bench.progress import for_terminal
    from fscil_bench.registry import load_registry
    from fscil_bench.store import Store, data_roots
    from fscil_bench.workbench import Options, Workbench

    registry = load_registry(tuple(plugin))
    options = Options(
        data_roots=data_roots(data_root),
        unofficial_data=unofficial_data,
        skip_broken=skip_broken,
    )
    bench = Workbench(Store(None, cache), registry, for_terminal(), options)
    data = bench.dataset(*registry.protocol(protocol))
    show(f"data set        {data.name}")
    show(f"classes         {len(data.class_names)}")
    show(f"training images {len(data.train)}")
    show(f"test images     {len(data.test)}")
    show(f"fingerprint     {data.fingerprint}")
    if data.skipped:
        show(f"skipped         {data.skipped} broken images")
    if data.unofficial:
        show(f"unofficial      {data.unofficial}")


@data_app.command(name="list")
@explained
def list_(
    data_root: DataRoot = None,
    cache: Cache = None,
    plugin: Plugins = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Show which data sets are there, where, and how big; and what the caches hold."""
    del debug
    from fscil_bench.registry import load_registry
    from fscil_bench.store import Store, data_roots

    registry = load_registry(tuple(plugin))
    roots = data_roots(data_root)
    for name in registry.names("data set"):
        show(f"{name:<16} {_where(registry.get('data set', name).value(), roots)}")
    store = Store(None, cache)
    for folder, size in cached(store.cache):
        show(f"cache            {folder}  {_megabytes(size)}")


@data_app.command()
@explained
def clear(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Cache folders as `data list` shows them. (default: all of them)"),
    ] = None,
    cache: Cache = None,
    debug: Debug = False,
) -> None:
    """Remove caches: decoded images, features, what methods learnt from base data."""
    del debug
    import shutil

    from fscil_bench.store import Store

    store = Store(None, cache)
    known = {str(folder): folder for folder, _ in cached(store.cache)}
    for name in what or list(known):
        if name not in known:
            raise UsageError(f"{name}: not a cache folder; `fscil-bench data list` shows them")
        shutil.rmtree(known[name])
        show(f"removed {name}")


@data_app.command()
@explained
def scan(
    folder: Annotated[Path, typer.Argument(help="A folder of images, one folder a class; or CSV.")],
    way: Annotated[int, typer.Option(help="New classes a session.")] = 5,
    shot: Annotated[int, typer.Option(help="Images of each new class.")] = 5,
    base: Annotated[str, typer.Option(help="Base classes: a number, or a share like 60%.")] = "60%",
    debug: Debug = False,
) -> None:
    """Print a protocol of your own images, to be saved as a TOML file."""
    del debug
    from fscil_bench.scan import scan as scanned

    show(scanned(folder, way, shot, base).rstrip())


def cached(cache: Path) -> Iterator[tuple[Path, int]]:
    """Yield every cache folder with its size in bytes."""
    for folder in sorted(cache.glob("*/*")):
        if folder.is_dir() and not folder.name.startswith("."):
            yield folder, sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


def _reader(name: str, plugins: list[Path]) -> DatasetReader:
    from fscil_bench.registry import load_registry

    reader: DatasetReader = load_registry(tuple(plugins)).get("data set", name).value()
    return reader


def _where(reader: DatasetReader, roots: tuple[Path, ...]) -> str:
    try:
        source = reader.find(roots)
    except FscilError as error:
        return f"not there: {str(error).splitlines()[0]}"
    if source.path is None:
        return "drawn by the program, needs no data"
    files = [source.path] if source.path.is_file() else source.path.rglob("*")
    size = sum(file.stat().st_size for file in files if file.is_file())
    mark = f"  unofficial: {source.unofficial}" if source.unofficial else ""
    return f"{source.path}  {_megabytes(size)}{mark}"


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def _get_weights(source: Path | None) -> None:
    from fscil_bench.weights import install_weights

    show(f"{WEIGHTS}: {install_weights(WEIGHTS, source)}")
