"""How fast FlipTest is: its map beside the paper's network and exact transport, and by size."""

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

from benchmarks.claims import Claim, PairedRatio, Say, print_wide
from offline_audit.maps import Columns, map_method
from offline_audit.maps.costs import SQUARED_L2
from offline_audit.maps.scaling import Scaling
from offline_audit.maps.transport_map import Features
from offline_audit.maps.wgan import WganMethod

__all__ = ["made_up_groups", "measure_fliptest"]

_COMPARED, _LARGE, _ROWS = 10_000, 1_000_000, 100_000
_RUN = "benchmarks.audits_fliptest_run"
# Steps of the paper's network, and those that are run where it is extrapolated.
_STEPS, _FEW_STEPS = 20_000, 400


def made_up_groups(n: int, *, width: int = 10) -> tuple[Features, Features, Columns]:
    """Skewed, correlated features that differ in margins and in how they hang together."""
    rng = np.random.default_rng(n)
    groups = []
    for group in (0, 1):
        shared = rng.normal(size=(n, 1))
        tie = np.where(np.arange(width) % 2 == 0, 0.7 - 0.5 * group, 0.4)
        scores = tie * shared + np.sqrt(1 - tie**2) * rng.normal(size=(n, width))
        scores[:, : width // 2] += 0.4 * group
        scores[:, -2:] = np.exp(0.5 * scores[:, -2:])
        groups.append(scores.astype(np.float32))
    return groups[0], groups[1], Columns.numeric([f"x{place}" for place in range(width)])


def measure_fliptest(quick: bool, say: Say) -> list[Claim]:  # noqa: FBT001 - as a benchmark's
    """Beside both peers, then alone at two sizes, in a process each."""
    return [*_beside(quick=quick, say=say), *_alone(quick=quick, say=say)]


def _beside(*, quick: bool, say: Say) -> list[Claim]:
    source, target, columns = made_up_groups(_COMPARED)

    def ours() -> None:
        map_method().fit(source, target, columns).carry(source)

    def exact(n: int) -> None:
        scaling = Scaling.of(source, target, columns)
        mass = np.full(n, 1 / n)
        costs = SQUARED_L2.pairwise(scaling.scaled(source[:n]), scaling.scaled(target[:n]))
        ot.emd(mass, mass, costs, numItermax=10_000_000)

    steps = _FEW_STEPS if quick else _STEPS

    def network() -> None:
        WganMethod(steps=steps).fit(source, target, columns).carry(source)

    ours()
    own = [_seconds(ours) for _ in range(3)]
    say(f"the paper's network, {steps:,} steps")
    trained = _seconds(network) * _STEPS / steps
    own += [_seconds(ours) for _ in range(3)]
    size = 2_500 if quick else _COMPARED
    say(f"exact transport, {size:,} a group")
    # Grows at least with the square of the people.
    solved = _seconds(lambda: exact(size)) * (_COMPARED / size) ** 2
    own += [_seconds(ours) for _ in range(3)]
    claims = []
    for peer, seconds, bar, told in (
        ("the paper's WGAN", trained, 500, "from fewer steps" if quick else None),
        ("exact transport (POT)", solved, 50, "as the square of the people" if quick else None),
    ):
        ratio = PairedRatio(ratios=tuple(seconds / each for each in own))
        details = ratio.details | {"seconds": statistics.median(own), "the peer's": seconds}
        claims.append(
            Claim(
                claim=f"default map, {_COMPARED:,} a group, 10 features, fit and carry",
                figure=ratio.median,
                unit=f"× {peer}",
                side="at least",
                bar=bar,
                rounds=len(own),
                details=details | ({} if told is None else {"extrapolated": told}),
            )
        )
    return claims


def _alone(*, quick: bool, say: Say) -> list[Claim]:
    large, rows = (100_000, 20_000) if quick else (_LARGE, _ROWS)
    say(f"default map, {large:,} a group")
    fitted = _in_a_process("map", large)
    say(f"complete FlipTest, {rows:,} rows")
    tested = _in_a_process("test", rows)
    table = Table(title="FlipTest in a process of its own")
    for heading in ("what", "s", "CPU s", "peak GiB"):
        table.add_column(heading, justify="right")
    for what, run in (
        (f"default map, {large:,} a group", fitted),
        (f"complete FlipTest, {rows:,} rows", tested),
    ):
        table.add_row(
            what, f"{run['seconds']:.1f}", f"{run['processor']:.1f}", f"{run['peak']:.2f}"
        )
    print_wide(table)
    return [
        Claim(
            claim=f"default map, {large:,} a group, 10 features, fit and carry",
            figure=fitted["seconds"],
            unit="s",
            side="at most",
            bar=60,
            rounds=1,
            details={"s of the processor": fitted["processor"]},
        ),
        Claim(
            claim=f"default map, {large:,} a group, with the people themselves",
            figure=fitted["peak"],
            unit="GiB at most",
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
            details={"s of the processor": tested["processor"], "peak GiB": tested["peak"]},
        ),
    ]


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _in_a_process(what: str, n: int) -> dict[str, float]:
    command = [sys.executable, "-m", _RUN, what, str(n)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found
