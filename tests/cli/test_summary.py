"""The table after a series of runs."""

from __future__ import annotations

from typing import Any

from fscil_bench.cli.summary import alarms, summary_table
from fscil_bench.plugins.registry import Registry, load_registry


def test_names_break_no_table(factory: Any, registry: Registry) -> None:
    runs = [factory.write(factory.spec("ncm", params={"space": "a|b\nc"}))]
    lines = summary_table(runs, registry).splitlines()
    assert len(lines) == 3
    assert r"| ncm space=a\|b c | 1 | 66.67 | 78.89 | 75.00 | 50.00 | 60.00 |" in lines[2]


def test_an_interval_is_shown_as_tables_show_it(factory: Any, registry: Registry) -> None:
    # Of two runs t is 12.7: 40 and 41 of 60 right images make 67.50 ± 10.59, 30 and 40 too much.
    for bases, last in (((30, 31), "67.50 ± 10.59"), ((20, 35), "62.50 ± –")):
        runs = [
            factory.write(factory.spec("ncm", seed), [(36, 0), (34, 6), (base, 10)])
            for seed, base in enumerate(bases)
        ]
        text = summary_table(runs, registry)
        assert f"| ncm | 2 | {last} |" in text
        assert ("± –: too few runs" in text) == ("–" in last)


def test_a_run_says_where_ldc_did_less_than_it_was_asked_for(factory: Any) -> None:
    registry = load_registry()
    spec = factory.spec("ldc", params={"lr": 1e30})
    fine = {"eigenvalues_raised": 3, "sessions_at_means": 0}
    assert alarms(factory.write(spec, notes=fine), registry) == []
    (told,) = alarms(factory.write(spec, notes={"sessions_at_means": 8}), registry)
    assert told.startswith("ldc on toy: sessions_at_means = 8: so many sessions have class means")
    assert told.endswith("try a lower lr")


def test_a_run_says_when_nothing_was_learnt(factory: Any, registry: Registry) -> None:
    # Of 40 test images in 4 base classes chance gets 10 right.
    assert alarms(factory.write(factory.spec("ncm"), [(11, 0)] * 3), registry) == []
    (told,) = alarms(factory.write(factory.spec("ncm", 1), [(10, 0)] * 3), registry)
    assert "session 0: 25.00 % of 4 classes, where chance is 25.00 %" in told
    assert "more --epochs" in told
    (told,) = alarms(
        factory.write(factory.spec(representation={"network": "my net"}), [(10, 0)] * 3), registry
    )
    assert "--epochs" not in told, "of what trains nothing"
