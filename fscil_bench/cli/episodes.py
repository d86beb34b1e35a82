"""`fscil-bench episodes`: ordinary few-shot classification on a protocol's new classes."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Annotated

import typer

from fscil_bench.cli.options import (
    Asked,
    Force,
    Overrides,
    command,
    complain,
    open_workbench,
    say_tables,
)
from fscil_bench.errors import UsageError
from fscil_bench.options import Options
from fscil_bench.request import words

if TYPE_CHECKING:
    from fscil_bench.episodes.store import StoredEpisodes


@command(leaving=("way", "shot", "sessions", "split", "index_list", "pseudo"))
def episodes(
    asked: Asked,
    options: Options,
    overrides: Overrides,
    way: Annotated[str, typer.Option(help="Classes of an episode: 5, or 5,10.")] = "5",
    shot: Annotated[str, typer.Option(help="Labelled images of each class: 1,5.")] = "1,5",
    queries: Annotated[
        int | None,
        typer.Option(
            help="Queries of each class. (default: 15, or as many as the class with the fewest "
            "test images has)"
        ),
    ] = None,
    count: Annotated[int, typer.Option("--episodes", help="How many are drawn.")] = 600,
    force: Force = False,
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """Measure few-shot classification: episodes of a few new classes, apart from all others.

    Every method gets the same episodes. What is stored is not made again. Shots come from the
    training half of the data, queries from the test half.
    """
    from fscil_bench.episodes.run import plan_episodes, run_episodes
    from fscil_bench.params import parse_params
    from fscil_bench.reporting.tables import mean_text
    from fscil_bench.request import Design
    from fscil_bench.running.series import make_all

    bench = open_workbench(options)
    requests = asked.requests(bench, overrides)
    sizes = {"queries": queries, "episodes": count}
    designs = [
        parse_params("an episode", Design, {"way": ways, "shot": shots, **sizes})
        for ways, shots in product(words(way), words(shot))
    ]
    plans = [plan_episodes(bench, request, each) for request in requests for each in designs]
    if not plans:
        raise UsageError("nothing to do: name a method, a protocol, a way and a shot")

    named = {bench.registry.protocol(word)[0].name: word for word in words(asked.protocol)}

    def told(title: str, made: StoredEpisodes | BaseException) -> None:
        if isinstance(made, BaseException):
            bench.progress.say(title)
            complain(made, debug)
            return
        accuracy = made.accuracy
        bench.progress.say(
            f"{title}: {mean_text(100 * accuracy.mean, 100 * accuracy.half_width)} % over "
            f"{accuracy.count} episode{'s' * (accuracy.count > 1)}  [{made.folder}]"
        )

    try:
        make_all(
            plans,
            lambda plan: run_episodes(bench, plan, force),
            lambda plan: plan.title,
            bench.progress,
            told,
            "sets of episodes",
            lambda plan: (plan.spec.run.row, plan.spec.design),
        )
    finally:
        say_tables(named, options, "few-shot")
