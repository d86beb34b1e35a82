"""What few-shot episodes are specified by, and what is stored of them."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from fscil_bench.errors import StoreError
from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.request import Design
from fscil_bench.spec import RunSpec, brought_title, digest_of, features_name
from fscil_bench.store.files import read_record, replaced_folder, work_folders, write_text
from fscil_bench.store.runs import Amount, Count, Store, WorkRecord, refuse_seeds

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
ACCURACIES = "accuracies.npy"


class EpisodesSpec(BaseModel):
    """What decides the accuracies: the run up to its base session, the episodes, the code.

    Attributes:
        run: the run whose method learns the base session; its seed draws the episodes too.
        design: what the episodes are made of.
        engine: digest of the engine modules that draw and score episodes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: RunSpec
    design: Design
    engine: str

    @property
    def key(self) -> str:
        """Identify the episodes: 16 hexadecimal digits."""
        return digest_of(self.model_dump())

    @property
    def version(self) -> str:
        """Identify the code that they were made with."""
        return digest_of([self.run.version, self.engine])


class EpisodesRecord(WorkRecord):
    """`episodes.json`: the specification and all that is known but the accuracies.

    Attributes:
        base_seconds: what the base session took.
        seconds: what all episodes took, learning and scoring together.
        state_bytes: what the method keeps after the base session.
    """

    schema_version: int = SCHEMA_VERSION
    spec: EpisodesSpec
    base_seconds: Amount = 0.0
    seconds: Amount = 0.0
    state_bytes: Count = 0


@dataclass(frozen=True)
class StoredEpisodes:
    """Finished episodes as read from disk."""

    record: EpisodesRecord
    folder: Path

    @property
    def spec(self) -> EpisodesSpec:
        """Their specification."""
        return self.record.spec

    @cached_property
    def accuracies(self) -> np.ndarray:
        """Accuracy of each episode, a fraction, float64 (episodes,), in the order of drawing.

        Raises:
            StoreError: the file is damaged.
        """
        path = self.folder / ACCURACIES
        try:
            values: np.ndarray = np.load(path, allow_pickle=False)
            if values.shape != (self.spec.design.episodes,) or values.dtype.kind != "f":
                raise ValueError(f"accuracies are {values.dtype} {values.shape}")
            if not bool(((values >= 0) & (values <= 1)).all()):
                raise ValueError("accuracies are not fractions")
        except Exception as error:
            raise StoreError(
                f"{path}: damaged ({error}); remove the folder {self.folder} and run it again"
            ) from error
        return values

    @property
    def damage(self) -> str:
        """What is wrong with the accuracies, with the remedy; empty if nothing is."""
        try:
            self.accuracies  # noqa: B018 - reading is the check
        except StoreError as error:
            return str(error)
        return ""

    @property
    def readable(self) -> bool:
        """Whether the accuracies can be read."""
        return not self.damage

    @property
    def accuracy(self) -> Interval:
        """Mean accuracy with its 95 % interval over the episodes."""
        return mean_interval(self.accuracies.tolist())


def write_episodes(store: Store, record: EpisodesRecord, accuracies: np.ndarray) -> StoredEpisodes:
    """Write finished episodes; `episodes.json`, which marks them as finished, comes last."""
    folder = _folder(store, record.spec)
    with replaced_folder(folder) as new:
        np.save(new / ACCURACIES, accuracies.astype(np.float64))
        write_text(new / "episodes.json", record.model_dump_json(indent=1) + "\n")
    return StoredEpisodes(record, folder)


def find_episodes(store: Store, spec: EpisodesSpec) -> StoredEpisodes | None:
    """Return the finished episodes of `spec`, or None.

    Those whose accuracies are damaged, or that were made from other weights than are stored now,
    count as not there, with a warning: whoever asks makes them again.

    Raises:
        StoreError: their record is damaged, or of another schema.
    """
    folder = _folder(store, spec)
    if not (folder / "episodes.json").exists():
        return None
    found = read_episodes(folder)
    try:
        found.accuracies  # noqa: B018 - reading is the check
    except StoreError as error:
        place = folder / ACCURACIES
        warnings.warn(f"{place}: damaged ({error.__cause__}); made again", stacklevel=2)
        return None
    return found if store.has_network(spec.run, found.record.network, folder) else None


def read_episodes(folder: Path) -> StoredEpisodes:
    """Read the record of finished episodes.

    Raises:
        StoreError: it is damaged, of another schema, or not the one that its folder names.
    """
    path = folder / "episodes.json"
    record = read_record(path, EpisodesRecord, SCHEMA_VERSION)
    refuse_seeds(record.spec.run, path)
    return StoredEpisodes(record, folder)


def stored_episodes(store: Store) -> tuple[list[StoredEpisodes], list[StoreError]]:
    """Return all readable episodes, oldest first, and what is wrong with the others."""
    found: list[StoredEpisodes] = []
    errors: list[StoreError] = []
    for folder in work_folders(store.results / "episodes"):
        try:
            found.append(read_episodes(folder))
        except StoreError as error:
            errors.append(error)
    return sorted(found, key=lambda each: each.record.created), errors


def episodes_frame(store: Store) -> pd.DataFrame:
    """Return one row for each set of episodes. Damaged ones are warned of."""
    found, errors = stored_episodes(store)
    rows = []
    for each in found:
        try:
            rows.append(episodes_row(each))
        except StoreError as error:
            errors.append(error)
    for problem in errors:
        warnings.warn(str(problem), stacklevel=3)
    import pandas as pd

    return pd.DataFrame(rows)


def episodes_row(stored: StoredEpisodes) -> dict[str, Any]:
    """Return finished episodes as one flat row; accuracy and half-width are fractions."""
    record, run, design = stored.record, stored.spec.run, stored.spec.design
    accuracy = stored.accuracy
    return {
        "key": record.key,
        "protocol": run.protocol.name,
        "method": run.method,
        "params": json.dumps(run.params, sort_keys=True),
        "representation": brought_title(run.representation),
        "features": features_name(run.representation),
        "representation_seed": run.representation.seed,
        "seed": run.seed,
        "way": design.way,
        "shot": design.shot,
        "queries": design.queries,
        "episodes": design.episodes,
        "accuracy": accuracy.mean,
        "half_width": accuracy.half_width,
        "seconds": record.seconds,
        "created": record.created,
        "folder": str(stored.folder),
    }


def _folder(store: Store, spec: EpisodesSpec) -> Path:
    return store.episodes_folder(spec.run.protocol.name, spec.run.method, spec.key)
