"""The `fscil-bench data` commands: get, check, list and scan data, list and clear caches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fscil_bench.cli.options import command, say, show
from fscil_bench.errors import DataError, UsageError
from fscil_bench.options import Options, given_path

if TYPE_CHECKING:
    from fscil_bench.data.reader import Dataset
    from fscil_bench.training.networks import NetworkFile

data_app = typer.Typer(
    no_args_is_help=True, help="Get, check and list data sets; make a protocol of your own."
)
WEIGHTS = "resnet18"
LEFTOVERS = "leftovers"


@data_app.command()
@command(only=("data_root", "unofficial_data", "plugins"))
def get(
    name: Annotated[
        str,
        typer.Argument(
            help="A data set; or a protocol, for what it reads; or resnet18, for ImageNet weights."
        ),
    ],
    options: Options,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            parser=given_path,
            metavar="<path>",
            help="Take this local archive or folder instead.",
        ),
    ] = None,
) -> None:
    """Fetch a data set from its published address, or take a local copy; verify it."""
    from fscil_bench.data.downloads import fetch, take
    from fscil_bench.data.listing import dataset_reader, whereabouts
    from fscil_bench.data.reader import file_digest
    from fscil_bench.plugins.registry import load_registry
    from fscil_bench.progress import for_terminal

    roots = options.data_roots
    if name == WEIGHTS:
        _get_weights(source)
        return
    reader = dataset_reader(load_registry(options.plugin_files), name, [WEIGHTS])
    if source is not None:
        show(f"{reader.name}: {take(reader, source, roots[0], options.unofficial_data)}")
        return
    if reader.download is None:
        reason = reader.advice or whereabouts(reader, roots, file_digest)
        raise DataError(f"data set {reader.name!r} cannot be fetched: {reason}")
    show(f"{reader.name}: {fetch(reader.download, roots[0], for_terminal())}")


@data_app.command()
@command(only=("data_root", "unofficial_data", "skip_broken", "cache", "plugins"))
def check(
    name: Annotated[
        str,
        typer.Argument(
            help="A protocol by name, or a TOML file; or a data set, for all of its classes."
        ),
    ],
    options: Options,
) -> None:
    """Verify the data of a protocol, what is decoded of them as well, and print the fingerprint.

    Every run records it.
    """
    from fscil_bench.data.cache import verify
    from fscil_bench.data.listing import protocol_of
    from fscil_bench.progress import for_terminal
    from fscil_bench.running.sessions import published_shots
    from fscil_bench.running.workbench import Workbench
    from fscil_bench.training.networks import packaged_networks

    bench = Workbench.open(options, for_terminal())
    protocol, folder = protocol_of(bench.registry, name)
    data = bench.data.of(protocol, folder)
    verify(data)
    shots = published_shots(protocol, folder, data)
    show(f"protocol        {protocol.name}")
    show(f"data set        {data.name}")
    show(f"classes         {len(data.class_names)}")
    show(f"training images {len(data.train)}")
    show(f"test images     {len(data.test)}")
    show(f"fingerprint     {data.fingerprint}")
    if shots:
        show(f"published shots {shots}")
    if data.skipped:
        show(f"skipped         {data.skipped} broken images")
    if data.unofficial:
        show(f"unofficial      {data.unofficial}")
    for network in packaged_networks(bench.registry):
        if network.card.protocol == protocol.name:
            show(f"network         {_network(network, data)}")


@data_app.command(name="list")
@command(only=("data_root", "results", "cache", "plugins"))
def list_(options: Options) -> None:
    """Show which data sets are there, where, and how big; and what the caches hold."""
    from fscil_bench.data.cache import ImageCache
    from fscil_bench.data.listing import megabytes, whereabouts
    from fscil_bench.plugins.registry import load_registry
    from fscil_bench.progress import for_terminal
    from fscil_bench.store.caches import cached, left_over
    from fscil_bench.store.runs import Store

    registry = load_registry(options.plugin_files)
    roots = options.data_roots
    store = Store.of(options)
    digest = ImageCache(store, for_terminal()).digest
    for name in registry.names("data set"):
        reader = registry.get("data set", name).value()
        if not reader.reads_any:
            show(f"{name:<16} {whereabouts(reader, roots, digest)}")
    for folder, size in cached(store.cache):
        show(f"cache            {folder}  {megabytes(size)}")
    if sizes := [size for _, size in left_over(store.cache, store.results)]:
        places = f"{store.cache} and {store.results}"
        show(
            f"{LEFTOVERS:<16} {len(sizes)} files or folders in {places}, left over from "
            f"interrupted work, if none is under way  {megabytes(sum(sizes))}"
        )


@data_app.command()
@command(only=("results", "cache"))
def clear(
    options: Options,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Cache folders, or leftovers, as `data list` shows them. (default: all of them)"
        ),
    ] = None,
) -> None:
    """Remove caches: decoded images, features, what methods learnt from base data.

    Leftovers are what interrupted work left half-written, in results too; work under way needs
    its own. Nothing is removed that fscil-bench did not make.
    """
    from fscil_bench.store.caches import TAG, cached, foreign, is_marked, left_over
    from fscil_bench.store.runs import Store

    store = Store.of(options)
    if store.cache.exists() and not is_marked(store.cache):
        raise UsageError(
            f"{store.cache}: not a cache of fscil-bench, it has no {TAG} of it (every run and "
            "`fscil-bench data check` write one); nothing was removed"
        )
    known = {str(folder): [folder] for folder, _ in cached(store.cache)}
    known[LEFTOVERS] = [path for path, _ in left_over(store.cache, store.results)]
    for name in what or list(known):
        if name not in known:
            hint = options.command("data", "list")
            raise UsageError(f"{name}: not a cache folder; `{hint}` shows them")
        for path in known[name]:
            _remove(path)
            show(f"removed {path}")
    for path in foreign(store.cache) if not what else ():
        show(f"left    {path}, which fscil-bench did not make")


@data_app.command()
@command()
def scan(
    folder: Annotated[
        str | None, typer.Argument(help="A folder of images, one folder a class; or CSV.")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            parser=given_path, metavar="<path>", help="A file of features in place of images."
        ),
    ] = None,
    way: Annotated[int, typer.Option(help="New classes a session.")] = 5,
    shot: Annotated[int, typer.Option(help="Images of each new class.")] = 5,
    base: Annotated[str, typer.Option(help="Base classes: a number, or a share like 60%.")] = "60%",
    out: Annotated[
        Path | None,
        typer.Option(
            parser=given_path,
            metavar="<path>",
            help="Write the protocol to this TOML file, once it is whole.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Let --out replace a file that is there.")
    ] = False,
) -> None:
    """Print a protocol of your own images or features, or write it to a TOML file with --out FILE.

    An error leaves no file, and `> FILE` an empty one.
    """
    from fscil_bench.data.scan import free_name, place_from, scan_features
    from fscil_bench.data.scan import scan as scanned
    from fscil_bench.plugins.registry import load_registry
    from fscil_bench.store.files import write_text

    given = given_path(folder)
    place = given if features is None else features
    if place is None or None not in (given, features):
        raise UsageError(
            "FOLDER and --features: name a folder of images (. for this one), or a file of features"
        )
    if out is not None:
        _check_target(out, force)
    elif force:
        raise UsageError("--force goes with --out FILE")
    at = out.parent if out is not None else None
    if features is None:
        text = scanned(place, way, shot, base, at=at, say=say)
    else:
        name = free_name(out, load_registry()) if out is not None else None
        text = scan_features(place, way, shot, base, name, at, say)
    if out is None:
        show(text.rstrip())
        return
    write_text(out, text)
    named = place_from(place, at)
    elsewhere = f"; its data lie elsewhere, so that it names their whole path, {named}"
    say(f"wrote {out}{elsewhere * Path(named).is_absolute()}")


def _remove(path: Path) -> None:
    import shutil

    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _network(network: NetworkFile, data: Dataset) -> str:
    """Say whether a network that comes along can be taken for these data."""
    from fscil_bench.training.networks import check_classes

    try:
        check_classes(network, data)
    except DataError as error:
        return f"not for these data: {error}"
    flags = [f"; {flag}" for flag in network.flags(data.fingerprint)[1:]]
    return f"{network.name} (sha256 {network.digest[:12]}){''.join(flags)}"


def _check_target(out: Path, force: bool) -> None:
    if out.suffix != ".toml":
        raise UsageError(f"--out {out}: a protocol's file must end in .toml")
    if out.exists() and not force:
        raise UsageError(f"--out {out}: is there already; --force replaces it")


def _get_weights(source: Path | None) -> None:
    from fscil_bench.plugins.registry import load_registry
    from fscil_bench.training.weights import install_weights

    backbone, _ = load_registry().backbone(WEIGHTS)
    show(f"{WEIGHTS}: {install_weights(backbone, source)}")
