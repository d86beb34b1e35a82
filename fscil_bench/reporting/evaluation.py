"""The evaluation side: features and true labels of a stored run's data, for reports alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from fscil_bench.data.cache import decoded_datasets
from fscil_bench.data.reader import Dataset, reordered
from fscil_bench.errors import FscilError, StoreError
from fscil_bench.plugins.registry import Registry
from fscil_bench.running.commands import command_for
from fscil_bench.running.pseudo import SUFFIX, base_training_data
from fscil_bench.spec import RunSpec
from fscil_bench.store.runs import Store, StoredRun
from fscil_bench.training.features import Features, stored_features


@dataclass(frozen=True)
class EvaluationFeatures:
    """What a run's representation makes of all images, and which class each of them shows.

    Attributes:
        train: float32 (n, D) features of the training half, new classes' images included.
        train_labels: int64 (n,) global class ids.
        test: float32 (m, D) features of the test half.
        test_labels: int64 (m,) global class ids.
        class_names: of all classes of the data set, by global id.
    """

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...]


class Evaluation:
    """Reads what no method may see, from the caches that runs have left; changes nothing."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self.store, self.registry = store, registry

    def features(self, run: StoredRun) -> EvaluationFeatures:
        """Return the features and labels of both halves of the data that a run was made with.

        Raises:
            StoreError: the caches are gone or damaged; the message says what makes them again.
        """
        spec = run.spec
        for dataset in self._datasets(spec):
            train, test = dataset.train, dataset.test
            key, counts = spec.representation.key, (len(train), len(test))
            if dataset.features is not None:
                found: Features | None = Features(*dataset.features)
            else:
                found = stored_features(self.store, key, *counts, spec.views)
            if found is not None:
                return EvaluationFeatures(
                    _frozen(found.train),
                    _frozen(train.labels),
                    _frozen(found.test),
                    _frozen(test.labels),
                    dataset.class_names,
                )
        raise StoreError(
            f"{self.store.cache}: holds no features of run {run.key}'s images (name the folder of "
            f"caches with --cache); they are made again by: {command_for(spec, self.registry)} "
            "--force"
        )

    def _datasets(self, spec: RunSpec) -> Iterator[Dataset]:
        """Yield the decoded data sets that are the run's, as its protocol orders and cuts them."""
        protocol = spec.protocol
        for dataset in decoded_datasets(self.store, protocol.dataset):
            if len(dataset.class_names) < protocol.classes_used:
                continue
            with suppress(FscilError):
                arranged = self._arranged(dataset, spec)
                if arranged.fingerprint == spec.representation.data_fingerprint:
                    yield arranged

    def _arranged(self, dataset: Dataset, spec: RunSpec) -> Dataset:
        protocol, folder = spec.protocol, self.store.cache
        if protocol.class_order.startswith("list:"):
            folder = self.registry.protocol(protocol.name.removesuffix(SUFFIX))[1]
        arranged = reordered(dataset, protocol.class_order, folder)
        if protocol.test_from_train is None:
            return arranged
        return base_training_data(arranged, protocol)


def _frozen(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view
