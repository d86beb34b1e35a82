"""What the `data` commands say: which data set a name means, what is there, where, how big."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fscil_bench.data.reader import DatasetReader, Digester
from fscil_bench.errors import FscilError, UsageError, nearest
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol


def dataset_reader(registry: Registry, name: str, others: Sequence[str] = ()) -> DatasetReader:
    """Return the reader of a data set, given by its name, or by a protocol's name or TOML file.

    Raises:
        UsageError: nothing is called so; the nearest names are given, with `others` among them.
    """
    datasets, protocols = registry.names("data set"), registry.names("protocol")
    if name in datasets:
        dataset = name
    elif name in protocols or name.endswith(".toml"):
        dataset = registry.protocol(name)[0].dataset
    else:
        close = nearest(name, {*datasets, *protocols, *others})
        raise UsageError(
            f"unknown data set or protocol {name!r}; {close}; a protocol in a file of yours is "
            "given by its path, ending in .toml"
        )
    reader: DatasetReader = registry.get("data set", dataset).value()
    return reader


def protocol_of(registry: Registry, name: str) -> tuple[Protocol, Path]:
    """Return a protocol with its folder, given by its name or TOML file, or by a data set's name.

    Of a data set's protocols it is the one that asks for most classes.

    Raises:
        UsageError: nothing is called so, or no protocol reads the data set.
    """
    if name.endswith(".toml") or name in registry.names("protocol"):
        return registry.protocol(name)
    reader = dataset_reader(registry, name)
    known = [registry.protocol(other) for other in registry.names("protocol")]
    fitting = [one for one in known if one[0].dataset == reader.name]
    if not fitting:
        raise UsageError(
            f"no known protocol reads the data set {name!r}; give a TOML file that does"
        )
    return max(fitting, key=lambda one: one[0].classes)


def whereabouts(reader: DatasetReader, roots: Sequence[Path], digest: Digester) -> str:
    """Return where a data set lies and how big it is, or what is wrong, without all advice."""
    try:
        source = reader.find(roots, digest)
    except FscilError as error:
        problem = str(error).splitlines()[0].partition(". ")[0]
        return f"not there: {problem}"
    if source.path is None:
        return "drawn by the program, needs no data"
    files = [source.path] if source.path.is_file() else source.path.rglob("*")
    size = sum(file.stat().st_size for file in files if file.is_file())
    mark = f"  unofficial: {source.unofficial}" if source.unofficial else ""
    return f"{source.path}  {megabytes(size)}{mark}"


def megabytes(size: int) -> str:
    """Return a number of bytes for people."""
    return f"{size / 2**20:.1f} MiB"
