"""The `fscil-bench features` commands: write a representation's features to a file, check one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fscil_bench.cli.options import (
    BROUGHT_PARAMETER,
    NO_TEXTS,
    VIEWS,
    Overrides,
    command,
    parse_settings,
    say,
    show,
    use_free_cores,
)
from fscil_bench.defaults import REPRESENTATION
from fscil_bench.options import Options

features_app = typer.Typer(
    no_args_is_help=True, help="Write features to a file for other machines and code; check one."
)
FileArgument = Annotated[Path, typer.Argument(help=".npz, .safetensors, .pt or .parquet.")]


@features_app.command()
@command()
def export(
    file: FileArgument,
    protocol: Annotated[
        str, typer.Option("--protocol", "-p", help="The protocol by name, or a TOML file.")
    ],
    options: Options,
    overrides: Overrides,
    representation: Annotated[
        str, typer.Option(help="What is trained on the base session.")
    ] = REPRESENTATION,
    representation_seed: Annotated[int, typer.Option(help="Seed of base training.")] = 0,
    representation_settings: Annotated[
        list[str], typer.Option("--set-representation", help=BROUGHT_PARAMETER)
    ] = NO_TEXTS,
    views: Annotated[str, typer.Option(help=VIEWS)] = "plain",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write the features of all of a protocol's images, with labels and names, to a file.

    The network is trained if it is not stored. `run --features FILE` takes the file.
    """
    from fscil_bench.api import export_features

    use_free_cores(options)
    written = export_features(
        protocol,
        file,
        representation=representation,
        representation_seed=representation_seed,
        representation_params=parse_settings(representation_settings),
        overrides=overrides.given(),
        views=views,
        force=force,
        progress=True,
        options=options,
    )
    say(f"wrote {file}: {written.title}")


@features_app.command()
@command()
def check(file: FileArgument) -> None:
    """Read a file of features, and say what is in it."""
    from fscil_bench.data.feature_file import card, read_feature_file

    for line in card(read_feature_file(file)):
        show(line)
