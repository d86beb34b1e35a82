"""Ordinary few-shot classification: a method taken through episodes of a few new classes."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from fscil_bench.episodes.draws import Episode, check_design, draw_episodes, hand_out
from fscil_bench.episodes.store import (
    EpisodesRecord,
    EpisodesSpec,
    StoredEpisodes,
    find_episodes,
    write_episodes,
)
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.method import Method
from fscil_bench.metrics import accuracy
from fscil_bench.plugins.digest import engine_digest
from fscil_bench.plugins.registry import Registry
from fscil_bench.request import Design, RunRequest
from fscil_bench.running.runner import best_columns, named, notes_of, refuse_diverged
from fscil_bench.running.sessions import SessionMaker
from fscil_bench.running.workbench import Plan, Workbench


@dataclass(frozen=True)
class EpisodesPlan:
    """Episodes resolved: their specification, and the plan of the run up to its base session."""

    spec: EpisodesSpec
    plan: Plan

    @property
    def title(self) -> str:
        """Name the episodes in a line."""
        run = self.spec.run
        design = self.spec.design.title
        return f"{run.method} on {run.protocol.name}, {design}, seed {run.seed}"


def plan_episodes(bench: Workbench, request: RunRequest, design: Design) -> EpisodesPlan:
    """Resolve a request for episodes.

    Raises:
        UsageError: the method does not do few-shot classification, the protocol has too few new
            classes, or what `Workbench.plan` refuses.
        DataError: a new class has too few images, or the data are missing or damaged.
    """
    check_learns(bench.registry, request.method)
    # Episodes draw their own shots: published ones need not be of this copy of the data.
    plan = bench.plan(replace(request, split="seeded", index_list=None))
    used = plan.spec.protocol.classes_used
    counts = np.bincount(plan.dataset.test.labels, minlength=used)[:used]
    design = design.settled(int(counts.min()))
    check_design(design, plan.spec.protocol, plan.dataset)
    spec = EpisodesSpec(run=plan.spec, design=design, engine=engine_digest(*EPISODES))
    return EpisodesPlan(spec, plan)


def run_episodes(bench: Workbench, planned: EpisodesPlan, force: bool = False) -> StoredEpisodes:
    """Return the stored episodes of a plan, made now if they are not there (or if `force`).

    Raises:
        FscilError: the method fails, or does not keep to its contract.
    """
    plan, spec = planned.plan, planned.spec
    if not force:
        found = find_episodes(bench.store, spec)
        if found is not None:
            return found
    method, maker, pretrain_seconds = bench.begin(plan)
    started = time.perf_counter()
    with named(method, "in the base session"):
        method.learn_base(maker.session(0))
        before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    learnt = time.perf_counter()
    refuse_diverged(method, spec.run.protocol.base_classes, "in the base session")
    accuracies = _accuracies(bench, method, maker, spec)
    ended = time.perf_counter()
    _check_state(method, before)
    record = EpisodesRecord(
        key=spec.key,
        spec=spec,
        pretrain_seconds=pretrain_seconds,
        base_seconds=learnt - started,
        seconds=ended - learnt,
        state_bytes=method.state_bytes(),
        notes=notes_of(method),
        **bench.known(plan),
    )
    return write_episodes(bench.store, record, accuracies)


def check_learns(registry: Registry, name: str) -> None:
    """Refuse a method that does not do ordinary few-shot classification.

    Raises:
        UsageError: it does not; those that do are named.
    """
    if registry.get("method", name).value.learns_episodes():
        return
    able = [
        n for n in registry.names("method") if registry.get("method", n).value.learns_episodes()
    ]
    raise UsageError(
        f"method {name!r} does not do ordinary few-shot classification (it has no "
        f"episode_scores); methods that do: {', '.join(able) or 'none'}"
    )


def episode_accuracy(method: Method, maker: SessionMaker, episode: Episode, number: int) -> float:
    """Return correct / total over an episode's queries; the first of equal columns wins.

    Raises:
        FscilError: scores of a wrong shape, or not finite.
    """
    shots, queries = hand_out(maker, episode, number)
    when = f"in episode {number + 1}"
    with named(method, when):
        scores = method.episode_scores(shots, queries)
    expected = (len(episode.queries), len(episode.classes))
    columns = best_columns(method, scores, expected, "way", when)
    return accuracy(episode.classes[columns], maker.dataset.test.labels[episode.queries])


def _accuracies(
    bench: Workbench, method: Method, maker: SessionMaker, spec: EpisodesSpec
) -> np.ndarray:
    design = spec.design
    values = np.empty(design.episodes)
    draws = draw_episodes(maker.dataset, maker.protocol, design, spec.run.seed)
    with bench.progress.task(f"{method.name}: {design.title} episodes", design.episodes) as task:
        for number, episode in enumerate(draws):
            values[number] = episode_accuracy(method, maker, episode, number)
            task.update(number + 1, f"{100 * values[: number + 1].mean():.2f} %")
    return values


def _check_state(method: Method, before: dict[str, torch.Tensor]) -> None:
    after = method.state_dict()
    same = set(after) == set(before) and all(
        torch.equal(tensor, after[name]) for name, tensor in before.items()
    )
    if not same:
        raise FscilError(
            f"method {method.name!r} changed its state while it scored episodes, so that one "
            "depends on another; episode_scores must leave the state as it is"
        )


EPISODES = (_accuracies,)
"""Where the digest of the engine's code starts that decides accuracies, beside that of a run."""
