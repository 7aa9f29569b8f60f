"""One part of FlipTest in a process of its own, for `benchmarks.audits`: how long, in what memory.

    python -m benchmarks.audits_fliptest_run map <people of a group>
    python -m benchmarks.audits_fliptest_run test <rows>

Prints JSON: seconds by the clock and of the processor, and the peak of the resident memory in GiB,
people included.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.audits_fliptest import made_up_groups
from benchmarks.peak_memory import peak_gib
from monitor.world import World
from monitor.world.classifiers import decide, train_proxy_biased
from offline_audit.fliptest import flip_test
from offline_audit.maps import Columns, map_method


def _map(n: int) -> Callable[[], object]:
    """The default map, fitted to two groups, with everyone of the one carried."""
    source, target, columns = made_up_groups(n)
    return lambda: map_method().fit(source, target, columns).carry(source)


def _test(rows: int) -> Callable[[], object]:
    """A complete FlipTest of a network on people of the world."""
    world = World()
    classifier = train_proxy_biased(world.people(20_000, seed=1), seed=0)
    people = world.people(rows, seed=2)
    return partial(
        flip_test,
        partial(decide, classifier),
        people.features,
        {"sex": np.array(["man", "woman"])[people.groups["sex"]]},
        columns=Columns(features=world.features, one_hot_groups=world.one_hot_groups),
        progress=_tell,
    )


def _tell(what: str, done: int, total: int) -> None:
    print(f"{done} of {total}: {what}", file=sys.stderr)


if __name__ == "__main__":
    work = {"map": _map, "test": _test}[sys.argv[1]](int(sys.argv[2]))
    before = peak_gib()
    started, processor = time.perf_counter(), time.process_time()
    work()
    seconds, used = time.perf_counter() - started, time.process_time() - processor
    found = {"seconds": seconds, "processor": used, "peak": peak_gib(), "before": before}
    print(json.dumps(found))
