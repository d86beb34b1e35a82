"""The `fscil-bench networks` commands: list, show and export networks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fscil_bench.cli.options import command, listed, say, show
from fscil_bench.defaults import FIRST_METHOD, REPRESENTATION
from fscil_bench.errors import DataError, UsageError, no_file
from fscil_bench.options import Options

if TYPE_CHECKING:
    from fscil_bench.spec import RepresentationSpec
    from fscil_bench.store.runs import RunRecord, Store

OWN = (
    "trained by this suite, not by the papers' authors; `--network released` takes its protocol's:"
)
"""What is said of the networks that come along."""
networks_app = typer.Typer(
    no_args_is_help=True, help="List, show and export networks that --network takes."
)


@networks_app.command(name="list")
@command(only=("results",))
def list_(options: Options) -> None:
    """List the networks that come along, and those that were trained here."""
    from fscil_bench.data.listing import megabytes
    from fscil_bench.plugins.registry import load_registry
    from fscil_bench.store.runs import Store, told_flag
    from fscil_bench.training.networks import packaged_networks, stored_networks

    say(OWN)
    for network in packaged_networks(load_registry()):
        card, size = network.card, network.path.stat().st_size
        flags = "".join(f", {told_flag(flag)}" for flag in card.copy_flags)
        show(
            f"{network.name:<24} {card.title}: {_told(card.protocol, card.spec)}{flags}, "
            f"sha256 {network.digest[:12]}, {megabytes(size)}"
        )
    store = Store.of(options)
    for key, record in stored_networks(store).items():
        size = (store.representation_folder(key) / "weights.safetensors").stat().st_size
        show(f"{key:<24} in {store.results}: {_stored(record)}, {megabytes(size)}")


@networks_app.command(name="show")
@command(only=("plugins",))
def show_(
    network: Annotated[str, typer.Argument(help="One that comes along by name, or a file.")],
    options: Options,
) -> None:
    """Show a network's card: how it was trained, on what, by which machine."""
    from fscil_bench.plugins.registry import load_registry
    from fscil_bench.training.networks import packaged_networks, read_network

    registry = load_registry(options.plugin_files)
    known = {each.name: each for each in packaged_networks(registry)}
    found = known.get(network)
    if found is None:
        if not Path(network).is_file():
            hint = "`networks list` names those that come along, of which `released` is the run's"
            raise UsageError(f"{network}: {no_file(network)}; {hint}")
        found = read_network(Path(network), registry)
    card, spec = found.card, found.card.spec
    best, seconds = card.log.get("best_epoch"), card.log.get("seconds")
    facts = {
        "title": card.title,
        "license": card.license or "not stated",
        "sha256": found.digest,
        "protocol": card.protocol,
        "representation": ", ".join([spec.name, *_values(spec.params)]),
        "seed": spec.seed,
        "backbone": f"{spec.backbone}, pre-training {spec.pretraining}",
        "recipe": ", ".join(_values(vars(spec.recipe))),
        "best epoch": "" if best is None else best,
        "trained in": f"{seconds:.0f} s, {spec.precision}" if seconds else spec.precision,
        "data set": f"{spec.dataset}, fingerprint {spec.data_fingerprint}",
        "copy": ", ".join(card.copy_flags),
        "images a class": " to ".join(map(str, dict.fromkeys(card.train_images))),
        "images": ", ".join(_values(vars(spec.images))),
        "classes": f"{len(card.classes)}: {', '.join(card.classes)}",
        "code": f"{spec.code}, engine {spec.engine}, weights {card.weights}",
        "machine": ", ".join(_values(card.environment)),
        "written": card.created,
    }
    for name, value in facts.items():
        if value != "":
            show(f"{name:<15} {value}")


@networks_app.command()
@command(only=("results", "cache", "plugins"))
def export(
    file: Annotated[Path, typer.Argument(help="The file to write; ends in .safetensors.")],
    options: Options,
    protocol: Annotated[
        str,
        typer.Option("--protocol", "-p", help="The protocol it was trained on: name or TOML file."),
    ],
    representation: Annotated[
        str, typer.Option(help="What was trained on the base session.")
    ] = REPRESENTATION,
    representation_seed: Annotated[int, typer.Option(help="Seed of base training.")] = 0,
    key: Annotated[
        str, typer.Option(help="Of several that fit, the one whose key begins so.")
    ] = "",
    title: Annotated[
        str, typer.Option(help="What tables call it. (default: protocol and representation)")
    ] = "",
    licence: Annotated[
        str, typer.Option("--license", help="On what terms it may be used, in a line.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a network that a finished run stands on to a file that --network takes."""
    from fscil_bench.plugins.registry import load_registry
    from fscil_bench.store.runs import Store
    from fscil_bench.training.networks import SUFFIX, export_network, stored_networks

    if file.suffix != SUFFIX:
        raise UsageError(f"{file}: a network's file must end in {SUFFIX}")
    if file.exists() and not force:
        raise UsageError(f"{file}: is there already; --force replaces it")
    store, registry = Store.of(options), load_registry(options.plugin_files)
    name = registry.protocol(protocol)[0].name if protocol.endswith(".toml") else protocol
    asked = (name, representation, representation_seed)
    fitting = {
        own: record
        for own, record in stored_networks(store).items()
        if _asked(record) == asked and own.startswith(key)
    }
    make = ["run", "--method", FIRST_METHOD, "--protocol", protocol]
    make += ["--representation", representation, "--representation-seed", str(representation_seed)]
    record = _only(fitting, store, asked, options.command(*make))
    written = export_network(store, registry, record, file, title, licence)
    say(f"wrote {file}: {written.label}")


def _values(values: Mapping[str, Any]) -> list[str]:
    """Return `name=value` for each entry; what is nested is taken out."""
    inner = [_values(value) for value in values.values() if isinstance(value, Mapping)]
    own = [f"{name}={v}" for name, v in values.items() if not isinstance(v, Mapping)]
    return sum(inner, own)


def _told(protocol: str, spec: RepresentationSpec) -> str:
    """Return in a line what tells networks apart."""
    epochs = spec.recipe.epochs
    return (
        f"{protocol}, {spec.name}, representation seed {spec.seed}, {epochs} "
        f"epoch{'s' * (epochs != 1)}, {spec.precision}"
    )


def _stored(record: RunRecord) -> str:
    told = _told(record.spec.protocol.name, record.spec.representation)
    return f"{told}, weights {record.network}"


def _asked(record: RunRecord) -> tuple[str, str, int]:
    spec = record.spec.representation
    return record.spec.protocol.name, spec.name, spec.seed


def _only(
    fitting: dict[str, RunRecord], store: Store, asked: tuple[str, str, int], make: str
) -> RunRecord:
    """Return the one network that fits; `make` is the command that makes one.

    Raises:
        DataError: none does; what is stored is told, or how one is made.
        UsageError: several do.
    """
    from fscil_bench.training.networks import stored_networks

    if not fitting:
        protocol, name, seed = asked
        stored = [f"{key}: {_stored(record)}" for key, record in stored_networks(store).items()]
        raise DataError(
            f"no finished run in {store.results} stands on a network of protocol {protocol!r}, "
            f"representation {name!r}, representation seed {seed}; `{make}` makes one; stored:\n  "
            f"{listed(stored) if stored else 'none'}"
        )
    if len(fitting) > 1:
        told = listed([f"{key}: {_stored(record)}" for key, record in fitting.items()])
        raise UsageError(f"several networks fit; name one with --key:\n  {told}")
    return next(iter(fitting.values()))
