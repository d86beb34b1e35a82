"""Data sets as protocols want them: decoded, or with features from a file, and read once."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fscil_bench.data.cache import ImageCache
from fscil_bench.data.feature_file import FeatureFile, read_feature_file
from fscil_bench.data.feature_match import with_features
from fscil_bench.data.reader import Dataset, ReadRequest, reordered
from fscil_bench.errors import DataError, OtherClassesError, UsageError
from fscil_bench.options import Options
from fscil_bench.plugins.registry import Plugin, Registry
from fscil_bench.progress import Progress
from fscil_bench.protocol import FEATURES, Protocol
from fscil_bench.running.pseudo import base_training_data
from fscil_bench.running.sessions import CanonicalShots, check_dataset, refuse_absent_shots
from fscil_bench.spec import digest_of
from fscil_bench.store.runs import Store


class Datasets:
    """Finds, decodes, arranges and keeps the data sets of protocols; tells a remark once."""

    def __init__(
        self, store: Store, registry: Registry, progress: Progress, options: Options
    ) -> None:
        self.store, self.registry = store, registry
        self.progress, self.options = progress, options
        self._read: dict[str, Dataset] = {}
        self._arranged: dict[str, Dataset] = {}
        self._feature_files: dict[Path, FeatureFile] = {}
        self._said: set[str] = set()

    def of(self, protocol: Protocol, folder: Path, listed: CanonicalShots | None = None) -> Dataset:
        """Return the protocol's data set, checked against it; `folder` is the protocol's own.

        Before images are decoded, the shots that are `listed` are known to be among them.
        """
        file = self.feature_file(protocol, folder)
        with _advising(self.options):
            if file is None:
                dataset = self._decoded(protocol, folder, listed)
            else:
                dataset = self._with_features(protocol, folder, file)
            order, tested = protocol.class_order, protocol.test_from_train
            cut = [order, str(folder), tested, protocol.classes_used]
            key = digest_of([dataset.name, dataset.fingerprint, *cut])
            if key not in self._arranged:  # features are copied, and many plans may share them
                arranged = reordered(dataset, order, folder)
                if tested is not None:
                    arranged = base_training_data(arranged, protocol)
                self._arranged[key] = arranged
            alone = file is not None and dataset.matching == "file"
            what = f"file of features {file.name!r}" if file is not None and alone else ""
            check_dataset(protocol, self._arranged[key], what)
            return self._arranged[key]

    def find(self, protocol: Protocol, folder: Path) -> None:
        """Look for the protocol's data, without decoding them.

        Raises:
            DataError: they are not there.
        """
        reader, roots = self._reader(protocol, folder)
        reader.value().find(roots, self._image_cache().digest)

    def feature_path(self, protocol: Protocol, folder: Path) -> Path | None:
        """Return the file that features come from, if they do."""
        own = folder / protocol.features if protocol.features else None
        return Path(self.options.features) if self.options.features else own

    def feature_file(self, protocol: Protocol, folder: Path) -> FeatureFile | None:
        """Return the features that stand for the protocol's images, if any do."""
        path = self.feature_path(protocol, folder)
        if path is None:
            return None
        if path not in self._feature_files:
            self._feature_files[path] = read_feature_file(path)
        return self._feature_files[path]

    def say_once(self, text: str) -> None:
        """Show a remark, unless it was shown before."""
        if text not in self._said:
            self._said.add(text)
            self.progress.say(text)

    def _decoded(self, protocol: Protocol, folder: Path, listed: CanonicalShots | None) -> Dataset:
        """Return the protocol's data set as its reader gives it."""
        reader, roots = self._reader(protocol, folder)
        request = ReadRequest(protocol.classes, protocol.images, protocol.reader_options)
        images = request.images.model_dump()
        key = digest_of([reader.name, request.classes, images, request.options, *map(str, roots)])
        if key not in self._read:
            check = None if listed is None else partial(refuse_absent_shots, listed, reader.name)
            self._read[key] = self._image_cache().load(
                reader.value(), reader.digest(), roots, request, check
            )
        return self._read[key]

    def _with_features(self, protocol: Protocol, folder: Path, file: FeatureFile) -> Dataset:
        """Return the protocol's data set with features from a file, and no pixels."""
        key = digest_of([file.digest, protocol.dataset, protocol.classes, protocol.reader_options])
        if key not in self._read:
            request = ReadRequest(protocol.classes, protocol.images, protocol.reader_options)
            reader, roots = None, self.options.data_roots
            if protocol.dataset != FEATURES:
                plugin, roots = self._reader(protocol, folder)
                reader = plugin.value()
            self._read[key], remarks = with_features(
                file, protocol.dataset, reader, roots, request, self._image_cache()
            )
            for remark in remarks:
                self.say_once(remark)
        return self._read[key]

    def _reader(self, protocol: Protocol, folder: Path) -> tuple[Plugin, tuple[Path, ...]]:
        """Return the protocol's reader, and where it looks."""
        try:
            reader = self.registry.get("data set", protocol.dataset)
        except UsageError as error:
            raise UsageError(
                f"protocol {protocol.name!r} in {folder}: dataset = {protocol.dataset!r}: {error}"
            ) from error
        own = (folder / protocol.data,) if protocol.data else ()
        return reader, (*own, *self.options.data_roots)

    def _image_cache(self) -> ImageCache:
        options = self.options
        return ImageCache(self.store, self.progress, options.skip_broken, options.unofficial_data)


@contextmanager
def _advising(options: Options) -> Iterator[None]:
    """Let a file of features of other classes say what makes a protocol that it fits."""
    try:
        yield
    except OtherClassesError as error:
        if options.features is None:
            raise
        file = shlex.quote(str(options.features))
        scan = f"fscil-bench data scan --features {file} --way 5 --shot 5 --base 60% --out own.toml"
        raise DataError(f"{error}; `{scan}` makes a protocol of the file's own classes") from error
