"""Run a part of FlipTest in a process of its own, for `benchmarks.audits`.

    python -m benchmarks.audits_fliptest_run map <rows per group>
    python -m benchmarks.audits_fliptest_run test <rows> [<n_resamples> <n_bootstrap>]

Prints JSON: wall-clock and CPU seconds, and the peak resident memory in GiB, with the rows, and
before the run.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.audits_fliptest import synthetic_groups
from benchmarks.peak_memory import peak_gib
from monitor import World, decide, train_proxy_biased
from offline_audit import Columns, flip_test, map_method


def _map(n: int) -> Callable[[], object]:
    """Fit the default map to two groups and transport the first."""
    source, target, columns = synthetic_groups(n)
    return lambda: map_method().fit(source, target, columns).transport(source)


def _test(
    rows: int, n_resamples: int | None = None, n_bootstrap: int | None = None
) -> Callable[[], object]:
    """A complete FlipTest of a network on people of the world."""
    world = World()
    classifier = train_proxy_biased(world.people(min(20_000, 5 * rows), seed=1), seed=0)
    people = world.people(rows, seed=2)
    return partial(
        flip_test,
        partial(decide, classifier),
        people.features,
        {"sex": np.array(["man", "woman"])[people.groups["sex"]]},
        columns=Columns(features=world.features, one_hot_groups=world.one_hot_groups),
        n_resamples=n_resamples,
        n_bootstrap=n_bootstrap,
        progress=_print_progress,
    )


def _print_progress(step: str, done: int, total: int) -> None:
    print(f"{done} of {total}: {step}", file=sys.stderr)


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[2:]]
    run = _map(*numbers) if sys.argv[1] == "map" else _test(*numbers)
    before = peak_gib()
    started, cpu_started = time.perf_counter(), time.process_time()
    run()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak_gib(), "before": before}))
