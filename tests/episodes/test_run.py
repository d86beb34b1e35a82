"""Few-shot episodes: what is drawn, what a method is handed, what is counted and stored."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import fscil_bench as fb
from fscil_bench import api
from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import Dataset, ImageArray
from fscil_bench.episodes.draws import Episode, check_design, draw_episodes, hand_out
from fscil_bench.episodes.run import episode_accuracy, plan_episodes, run_episodes
from fscil_bench.episodes.store import StoredEpisodes, read_episodes, stored_episodes
from fscil_bench.errors import DataError, FscilError, StoreError, UsageError
from fscil_bench.method import MethodContext, Needs
from fscil_bench.params import NoParams
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import load_protocol
from fscil_bench.request import Design, RunRequest
from fscil_bench.running.sessions import Assignment, SessionMaker
from fscil_bench.seeding import Randomness
from fscil_bench.store.runs import Store
from fscil_bench.training.features import Features

TOY = Path(__file__).parents[1] / "toy"
PROTOCOL = load_protocol(TOY / "toy.toml")  # 4 base classes, then 6 new ones
TRAIN = np.repeat(np.arange(10), 12)
TEST = np.repeat(np.arange(10), 5)
DESIGN = Design(way=3, shot=2, queries=4, episodes=50)

METHODS = load_registry((TOY / "toy_methods.py",))
TOY_MEANS: Any = METHODS.get("method", "toy_means").value


def dataset(train: np.ndarray = TRAIN, test: np.ndarray = TEST) -> Dataset:
    def half(labels: np.ndarray) -> ImageArray:
        images = Images.from_block(np.zeros((len(labels), 16, 16, 3), np.uint8))
        return ImageArray(images, labels, np.arange(len(labels)), tuple(map(str, labels)))

    names = tuple(f"toy {c}" for c in range(10))
    return Dataset("toy", names, names, half(train), half(test), "f")


def maker(train: np.ndarray, test: np.ndarray) -> SessionMaker:
    nothing = np.empty(0, dtype=np.int64)
    features = {"plain": Features(train, test)}
    return SessionMaker(PROTOCOL, dataset(), features, Assignment(nothing, nothing, ()), Needs())


def draws(seed: int = 0, **changes: int) -> list[Episode]:
    design = Design(**{**vars(DESIGN), **changes})
    return list(draw_episodes(dataset(), PROTOCOL, design, seed))


def test_an_episode_has_new_classes_alone_with_shots_and_queries_of_each() -> None:
    drawn = set()
    for episode in draws():
        drawn |= set(episode.classes.tolist())
        assert len(set(episode.classes.tolist())) == 3
        assert np.array_equal(TRAIN[episode.shots], np.repeat(episode.classes[:, None], 2, axis=1))
        assert len(set(episode.shots.ravel().tolist())) == 6
        assert len(set(episode.queries.tolist())) == 12
        counts = np.bincount(TEST[episode.queries], minlength=10)
        assert np.array_equal(counts[episode.classes], [4, 4, 4])
    assert drawn == {4, 5, 6, 7, 8, 9}, "no base class, and every new one in 50 episodes"
    changes = [np.diff(TEST[episode.queries]).astype(bool).sum() for episode in draws()]
    assert max(changes) > 2, "queries do not come class by class"


def test_seed_and_number_decide_an_episode_and_a_smaller_design_has_a_part() -> None:
    one = draws()
    for first, same in zip(one, draws(), strict=True):
        assert np.array_equal(first.shots, same.shots)
        assert np.array_equal(first.queries, same.queries)
    assert any(not np.array_equal(a.classes, b.classes) for a, b in zip(one, draws(1), strict=True))
    assert len({e.classes.tobytes() + e.shots.tobytes() for e in one}) > 45
    for small, large in zip(draws(shot=1), draws(shot=5), strict=True):
        assert np.array_equal(small.shots, large.shots[:, :1])
        assert np.array_equal(small.queries, large.queries), "the same questions for 1 and 5 shots"
    for small, large in zip(draws(episodes=3, way=2), one, strict=False):
        assert np.array_equal(small.classes, large.classes[:2])
        assert set(small.queries.tolist()) < set(large.queries.tolist())


def test_a_method_is_handed_ids_that_do_not_tell_the_classes() -> None:
    values = np.arange(120, dtype=np.float32)[:, None]
    made = maker(values, 1000 + values[:50])
    episode = draws()[7]
    shots, queries = hand_out(made, episode, 7)
    assert (shots.index, shots.class_ids, shots.classes_seen) == (8, (4, 5, 6), 7)
    assert shots.labels.tolist() == [4, 4, 5, 5, 6, 6]
    assert shots.features[:, 0].tolist() == episode.shots.ravel().tolist()
    assert (queries.features[:, 0] - 1000).tolist() == episode.queries.tolist()
    shots.features.zero_()
    assert values[1, 0] == 1, "a copy"


def toy_method(name: str) -> Any:
    randomness = Randomness(("test",))
    context = MethodContext(1, randomness, randomness, torch.device("cpu"))
    return METHODS.get("method", name).value(NoParams(), context)


def test_accuracy_by_hand() -> None:
    # Classes 4 and 9 lie at 4 and 9. The five test images of class 4 lie at 4, 5, 6, 7 and 8, of
    # which 7 and 8 are nearer to 9; those of class 9 at 9.
    train = TRAIN.astype(np.float32)[:, None]
    test = TEST.astype(np.float32)[:, None]
    test[20:25, 0] = [4, 5, 6, 7, 8]
    made = maker(train, test)
    shots = np.array([[48, 49], [108, 109]])
    queries = np.array([45, 24, 20, 46, 23, 22, 21, 47])  # 9 8 4 9 7 6 5 9
    episode = Episode(np.array([4, 9]), shots, queries)
    assert episode_accuracy(toy_method("toy_means"), made, episode, 0) == 6 / 8
    turned = Episode(np.array([9, 4]), shots[::-1], queries)
    assert episode_accuracy(toy_method("toy_means"), made, turned, 0) == 6 / 8
    assert episode_accuracy(toy_method("toy_first"), made, episode, 0) == 5 / 8
    assert episode_accuracy(toy_method("toy_first"), made, turned, 0) == 3 / 8


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (torch.zeros(8, 3), r"shape \(8, 3\), expected \(queries, way\) = \(8, 2\)"),
        (torch.full((8, 2), math.nan), "not finite in episode 3"),
        (None, "returned NoneType as scores"),
    ],
)
def test_scores_of_no_use_are_refused(returned: Any, message: str) -> None:
    made = maker(TRAIN.astype(np.float32)[:, None], TEST.astype(np.float32)[:, None])
    method = toy_method("toy_means")
    method.episode_scores = lambda shots, queries: returned  # noqa: ARG005
    episode = Episode(np.array([4, 9]), np.array([[48], [108]]), np.arange(20, 28))
    with pytest.raises(FscilError, match=message):
        episode_accuracy(method, made, episode, 2)


@pytest.mark.parametrize(
    ("changes", "data", "error", "message"),
    [
        ({"way": 7}, {}, UsageError, r"has 6 new classes, an episode needs 7 \(way\)"),
        ({"shot": 13}, {}, DataError, r"'toy 4' .* has 12 training images, an episode needs 13"),
        ({"queries": 6}, {}, DataError, r"'toy 4' .* has 5 test images, an episode needs 6"),
        ({}, {"test": TEST[:-2]}, DataError, r"'toy 9' .* has 3 test images.* --queries 3"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_numbers(
    changes: dict[str, int], data: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_design(Design(**{**vars(DESIGN), **changes}), PROTOCOL, dataset(**data))
    with pytest.raises(UsageError, match="has 0 new classes, an episode needs at least 2"):
        check_design(DESIGN, PROTOCOL.override(sessions=0), dataset())


def make(toy: Any, method: str = "toy_means", **options: Any) -> StoredEpisodes:
    return api.run_episodes(method, **toy.settings(**{**vars(DESIGN), **options}))


def test_what_is_stored_and_its_interval_t_s_over_root_n(toy: Any) -> None:
    stored = make(toy, shot=1)
    place = toy.folder / "results" / "episodes" / "toy" / "toy_means" / stored.record.key
    assert stored.folder == place
    assert sorted(path.name for path in place.iterdir()) == ["accuracies.npy", "episodes.json"]
    values = np.load(place / "accuracies.npy")
    assert values.shape == (50,) and values.std() > 0
    assert np.allclose(values * 12, np.round(values * 12)), "correct of 12 queries"
    assert values.mean() > 0.8, "the patterns are easy"
    record = json.loads((place / "episodes.json").read_text())
    assert record["spec"]["design"] == {"way": 3, "shot": 1, "queries": 4, "episodes": 50}
    assert record["parameters"] == "the method's defaults"
    assert (record["train_images"], record["state_bytes"]) == ([12, 12], 4 * 64 * 4)
    half = stats.t.ppf(0.975, 49) * values.std(ddof=1) / math.sqrt(50)
    assert stored.accuracy.mean == pytest.approx(values.mean(), rel=1e-12)
    assert stored.accuracy.half_width == pytest.approx(half, rel=1e-12)
    frame = fb.load_episodes(toy.folder / "results")
    row = frame.loc[frame["key"] == stored.record.key].iloc[0]
    assert (row["way"], row["shot"], row["queries"], row["episodes"]) == (3, 1, 4, 50)
    assert row["accuracy"] == pytest.approx(values.mean())
    assert row["half_width"] == pytest.approx(half)


def test_two_methods_get_the_same_episodes(toy: Any) -> None:
    seen: dict[str, list[Any]] = {}

    class Watched(TOY_MEANS):  # type: ignore[misc]
        name = "watched"

        def episode_scores(self, shots: Any, queries: Any) -> torch.Tensor:
            tensors = (shots.labels.clone(), shots.features.clone(), queries.features.clone())
            seen.setdefault(self.name, []).append(tensors)
            return super().episode_scores(shots, queries)

    class Other(Watched):
        name = "other"

    made = toy.bench(Watched, Other)
    for name in ("watched", "other"):
        run_episodes(made, plan_episodes(made, RunRequest(name, toy.toml), DESIGN))
    assert len(seen["watched"]) == len(seen["other"]) == 50
    for first, second in zip(seen["watched"], seen["other"], strict=True):
        assert all(map(torch.equal, first, second))


def test_what_is_stored_is_not_made_again_but_by_force(new_toy: Any) -> None:
    first, bench = make(new_toy), new_toy.bench()
    stamp = (first.folder / "episodes.json").stat().st_mtime_ns
    request = RunRequest("toy_means", new_toy.toml, chosen="chosen on the pseudo split")
    planned = plan_episodes(bench, request, DESIGN)
    assert run_episodes(bench, planned).record.parameters == "the method's defaults"
    assert (first.folder / "episodes.json").stat().st_mtime_ns == stamp
    again = run_episodes(bench, planned, force=True)
    assert (again.folder / "episodes.json").stat().st_mtime_ns > stamp
    assert again.record.parameters == "chosen on the pseudo split"
    assert np.array_equal(again.accuracies, first.accuracies)


def test_every_choice_moves_the_key(toy: Any) -> None:
    made = [
        make(toy),
        make(toy, "toy_first"),
        make(toy, seed=1),
        make(toy, way=2),
        make(toy, shot=3),
        make(toy, queries=5),
        make(toy, episodes=10),
        make(toy, representation_seed=1),
    ]
    assert len({stored.record.key for stored in made}) == len(made)
    assert np.array_equal(made[-2].accuracies, made[0].accuracies[:10])
    assert np.array_equal(made[1].accuracies, np.full(50, 1 / 3)), "right one time in `way`"
    assert made[1].accuracy.half_width == 0
    protocol = make(toy, overrides={"base_classes": 6}).spec.run.protocol
    assert (protocol.base_classes, protocol.sessions) == (6, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "finetune"}, r"'finetune' does not .* do: .*toy_first, toy_means"),
        ({"way": 1}, "an episode: way = 1: Input should be greater than or equal to 2"),
        ({"shot": 0}, "shot = 0"),
        ({"episodes": 0}, "episodes = 0"),
        ({"way": 8}, "has 6 new classes, an episode needs 8"),
    ],
)
def test_a_request_of_no_use_is_refused(toy: Any, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(toy, **options)


@pytest.mark.parametrize("fault", ["grows", "is interrupted"])
def test_what_goes_wrong_leaves_nothing_behind(new_toy: Any, fault: str) -> None:
    class Failing(TOY_MEANS):  # type: ignore[misc]
        name = "failing"

        def episode_scores(self, shots: Any, queries: Any) -> torch.Tensor:
            if fault == "grows":
                self.learn_session(shots)
            elif shots.index == 20:
                raise KeyboardInterrupt
            return super().episode_scores(shots, queries)

    made = new_toy.bench(Failing)
    planned = plan_episodes(made, RunRequest("failing", new_toy.toml), DESIGN)
    with pytest.raises((FscilError, KeyboardInterrupt)) as caught:
        run_episodes(made, planned)
    said = "'failing' changed its state while it scored episodes" if fault == "grows" else ""
    assert said in str(caught.value)
    assert not list((new_toy.folder / "results").glob("episodes/*/*/*"))


def saved(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("episodes.json", b"{", "not readable as JSON"),
        ("episodes.json", b'{"schema_version": 0}', "has schema version 0, .* reads 1"),
        ("episodes.json", b'{"schema_version": 1}', "damaged at key"),
        ("accuracies.npy", b"no array", "accuracies.npy: damaged"),
        ("accuracies.npy", saved(np.zeros(4)), r"accuracies are float64 \(4,\)"),
        ("accuracies.npy", saved(np.full(5, np.nan)), "accuracies are not fractions"),
        ("accuracies.npy", saved(np.zeros(5, complex)), r"accuracies are complex128 \(5,\)"),
    ],
)
def test_damage_is_named_and_made_good(toy: Any, name: str, content: bytes, message: str) -> None:
    make(toy)
    victim = make(toy, episodes=5)
    whole, file = victim.accuracies, victim.folder / name
    before = file.read_bytes()
    file.write_bytes(content)
    with pytest.raises(StoreError, match=message):
        read_episodes(victim.folder).accuracies  # noqa: B018
    with pytest.warns(UserWarning, match=message):
        frame = fb.load_episodes(toy.folder / "results")
    assert len(frame) >= 1 and victim.record.key not in set(frame["key"])
    if name == "accuracies.npy":
        with pytest.warns(UserWarning, match="damaged .*made again"):
            again = make(toy, episodes=5)
        assert (again.accuracies == whole).all()
    file.write_bytes(before)
    assert read_episodes(victim.folder).damage == ""


def test_a_record_under_another_key_is_damage(new_toy: Any) -> None:
    stored = make(new_toy, episodes=2)
    stored.folder.rename(stored.folder.with_name("0" * 16))
    (error,) = stored_episodes(Store(new_toy.folder / "results"))[1]
    assert "does not belong to its folder's key" in str(error)


def test_episodes_do_without_the_published_shots(new_toy: Any) -> None:
    """Those of a copy in another order do not fit; episodes draw their own."""
    protocol = new_toy.folder / "toy.toml"
    text = (TOY / "toy.toml").read_text().replace('split = "seeded"', 'split = "canonical"')
    protocol.write_text(text)
    shots = (TOY / "toy_shots.csv").read_text()
    (new_toy.folder / "toy_shots.csv").write_text(re.sub(r"\d+$", "9999", shots, flags=re.M))
    request = RunRequest("toy_means", str(protocol))
    with pytest.raises(UsageError, match="9999: not in data set 'toy'"):
        new_toy.bench().plan(request)
    planned = plan_episodes(new_toy.bench(), request, DESIGN)
    assert planned.spec.run.split == "seeded"
    assert planned.spec.key == plan_episodes(new_toy.bench(), request, DESIGN).spec.key
