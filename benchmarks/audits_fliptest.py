"""Speed of FlipTest: its map compared with the paper's network and exact transport, and by size."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import ot
from rich.table import Table

from benchmarks.claims import Claim, PairedRatio, Say, Scale, print_wide
from offline_audit import Columns, map_method
from offline_audit.maps.columns import Scaling
from offline_audit.maps.transport_map import SQUARED_L2, Features
from offline_audit.maps.wgan import WganMethod

__all__ = ["measure_fliptest", "synthetic_groups"]

_COMPARED, _LARGE, _ROWS = 10_000, 1_000_000, 100_000
_RUN = "benchmarks.audits_fliptest_run"
# Training steps of the paper's network, and steps that are run where it is extrapolated.
_STEPS, _FEW_STEPS = 20_000, 400


def synthetic_groups(n: int, *, width: int = 10) -> tuple[Features, Features, Columns]:
    """Two groups with skewed features; marginals and correlations differ."""
    rng = np.random.default_rng(n)
    groups = []
    for group in (0, 1):
        shared = rng.normal(size=(n, 1))
        loading = np.where(np.arange(width) % 2 == 0, 0.7 - 0.5 * group, 0.4)
        scores = loading * shared + np.sqrt(1 - loading**2) * rng.normal(size=(n, width))
        scores[:, : width // 2] += 0.4 * group
        scores[:, -2:] = np.exp(0.5 * scores[:, -2:])
        groups.append(scores.astype(np.float32))
    return groups[0], groups[1], Columns.numeric([f"x{index}" for index in range(width)])


def measure_fliptest(scale: Scale, say: Say) -> list[Claim]:
    """Compare with both peers, then run alone at larger sizes in processes of their own."""
    return [*_against_peers(scale=scale, say=say), *_alone(scale=scale, say=say)]


def _against_peers(*, scale: Scale, say: Say) -> list[Claim]:
    compared = scale.pick(full=_COMPARED, quick=_COMPARED, smoke=300)
    source, target, columns = synthetic_groups(compared)

    def ours() -> None:
        map_method().fit(source, target, columns).transport(source)

    def exact(n: int) -> None:
        scaling = Scaling.of(source, target, columns)
        mass = np.full(n, 1 / n)
        costs = SQUARED_L2.pairwise(scaling.scaled(source[:n]), scaling.scaled(target[:n]))
        ot.emd(mass, mass, costs, numItermax=10_000_000)

    steps = scale.pick(full=_STEPS, quick=_FEW_STEPS, smoke=2)

    def network() -> None:
        WganMethod(steps=steps).fit(source, target, columns).transport(source)

    ours()
    own = [_seconds(ours) for _ in range(3)]
    say(f"the paper's network, {steps:,} steps")
    trained = _seconds(network) * _STEPS / steps
    own += [_seconds(ours) for _ in range(3)]
    size = scale.pick(full=_COMPARED, quick=2_500, smoke=200)
    say(f"exact transport, {size:,} per group")
    # The time grows at least with the square of the rows.
    solved = _seconds(lambda: exact(size)) * (compared / size) ** 2
    own += [_seconds(ours) for _ in range(3)]
    claims = []
    by_steps, by_square = (
        ("from fewer steps", "with the square of the rows") if scale.small else (None, None)
    )
    for peer, seconds, bar, extrapolated in (
        ("the paper's WGAN", trained, 500, by_steps),
        ("exact transport (POT)", solved, 50, by_square),
    ):
        ratio = PairedRatio(ratios=tuple(seconds / one for one in own))
        details = ratio.details | {
            "seconds": statistics.median(own),
            "seconds of the peer": seconds,
        }
        claims.append(
            Claim(
                claim=f"default map, {compared:,} per group, 10 features, fit and transport",
                figure=ratio.median,
                unit=f"× {peer}",
                side="at least",
                bar=bar,
                rounds=len(own),
                details=details | ({} if extrapolated is None else {"extrapolated": extrapolated}),
            )
        )
    return claims


def _alone(*, scale: Scale, say: Say) -> list[Claim]:
    large, rows = scale.pick(full=(_LARGE, _ROWS), quick=(100_000, 20_000), smoke=(1_000, 1_000))
    say(f"default map, {large:,} per group")
    fitted = _in_a_process("map", large)
    say(f"complete FlipTest, {rows:,} rows")
    # The default is 499 permutations and 100 bootstrap resamples.
    resamples = (19, 5) if scale is Scale.SMOKE else ()
    tested = _in_a_process("test", rows, *resamples)
    table = Table(title="FlipTest in a process of its own")
    for heading in ("operation", "s", "CPU s", "peak GiB"):
        table.add_column(heading, justify="right")
    for operation, run in (
        (f"default map, {large:,} per group", fitted),
        (f"complete FlipTest, {rows:,} rows", tested),
    ):
        table.add_row(operation, f"{run['seconds']:.1f}", f"{run['cpu']:.1f}", f"{run['peak']:.2f}")
    print_wide(table)
    return [
        Claim(
            claim=f"default map, {large:,} per group, 10 features, fit and transport",
            figure=fitted["seconds"],
            unit="s",
            side="at most",
            bar=60,
            rounds=1,
            details={"CPU s": fitted["cpu"]},
        ),
        Claim(
            claim=f"default map, {large:,} per group, peak memory with the rows",
            figure=fitted["peak"],
            unit="GiB",
            side="at most",
            bar=4,
            rounds=1,
            details={"before": fitted["before"]},
        ),
        Claim(
            claim=f"complete FlipTest, {rows:,} rows, 25 columns, 499 permutations, 100 resamples",
            figure=tested["seconds"],
            unit="s",
            side="at most",
            bar=60,
            rounds=1,
            details={"CPU s": tested["cpu"], "peak GiB": tested["peak"]},
        ),
    ]


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _in_a_process(operation: str, *numbers: int) -> dict[str, float]:
    command = [sys.executable, "-m", _RUN, operation, *map(str, numbers)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result
