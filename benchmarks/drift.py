"""Whether the drift watch keeps its promises: bands that hold, rare false alarms, early true ones.

Sex and ethnicity are watched in four settings; alarms of change and share are those of sex. Bias is
injected as in `benchmarks.alarms`: half of the positive women stand as negative in one epoch of
fine-tuning. The rule for causes was shaped on seeds below 100.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.stats import binom  # type: ignore[import-untyped, unused-ignore]

from benchmarks.bands import band_claims
from benchmarks.claims import Claim, Say, Scale, report
from benchmarks.streams import SETTINGS, Pool, Setting, run
from monitor import Drift
from monitor.drift.alarms import Alarm
from monitor.drift.reference import DriftReference, Watcher

_SEED = 2000
_LEVEL, _RUN_LENGTH = 0.01, 1e6
_CLEAN, _LONGEST = 5_000, 50_000
_RISE = 0.005
_SHARE, _CHANGE = Watcher("share", "sex"), Watcher("change", "sex")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """How many classifiers a setting, runs of each kind, and people."""

    classifiers: int
    coverage_runs: int
    null_runs: int
    runs: int
    learn: int
    baseline: int
    pool: int
    # Streams have their length divided by this.
    shorter: int = 1


_FULL = _Sizes(
    classifiers=3,
    coverage_runs=400,
    null_runs=40,
    runs=10,
    learn=60_000,
    baseline=20_000,
    pool=50_000,
)
_QUICK = _Sizes(
    classifiers=1,
    coverage_runs=40,
    null_runs=20,
    runs=6,
    learn=24_000,
    baseline=15_000,
    pool=20_000,
)


_SMOKE = _Sizes(
    classifiers=1,
    coverage_runs=2,
    null_runs=1,
    runs=1,
    learn=3_000,
    baseline=1_000,
    pool=1_500,
    shorter=10,
)


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Simulate, print tables and return the claims."""
    torch.set_num_threads(1)
    sizes = scale.pick(full=_FULL, quick=_QUICK, smoke=_SMOKE)
    say("bands")
    claims = list(band_claims(runs=sizes.coverage_runs, level=_LEVEL, seed=_SEED))
    settings: list[Setting] = []
    for place, name in enumerate(SETTINGS):
        for number in range(sizes.classifiers):
            say(f"{name}, classifier {number + 1} of {sizes.classifiers}")
            seed = _SEED + 100 * place + 10 * number
            people = {"learn": sizes.learn, "baseline": sizes.baseline, "pool": sizes.pool}
            settings.append(Setting.make(name, seed=seed, **people))
    say("null runs")
    claims.append(_null_runs(settings[0].clean, sizes))
    say("changed classifiers")
    claims += _injections(settings, sizes)
    say("benign fine-tunes")
    claims.append(_benign(settings, sizes))
    say("other people")
    claims.append(_other_people(settings, sizes))
    say("cost")
    return claims + list(_cost(settings[0], scale=scale))


def _null_runs(pool: Pool, sizes: _Sizes) -> Claim:
    """Reference and stream drawn from one pool, so that they are exchangeable exactly."""
    steps, alarms = 100_000 // sizes.shorter, Counter[Watcher]()
    for number in range(sizes.null_runs):
        rng = np.random.default_rng(_SEED + number)
        rows = pool.drawn(rng, sizes.baseline)
        reference = DriftReference.take(rows.margin, rows.attributes, seed=number)
        drift = _watch(reference, rng)
        run(drift, [(pool, steps)], rng)
        alarms.update(alarm.watcher for alarm in drift.alarms)
    return Claim(
        claim=f"null runs of {steps} predictions that alarm at c = 10⁶, by the worst detector",
        figure=max(alarms.values(), default=0),
        unit=f"of {sizes.null_runs}",
        side="at most",
        # 9 of 40: more would have a chance of about 1 in 200 at the stated 10%.
        bar=float(binom.ppf(0.99, sizes.null_runs, steps / _RUN_LENGTH)),
        rounds=sizes.null_runs,
        details={" ".join(filter(None, watcher)): n for watcher, n in alarms.items()},
    )


def _injections(settings: list[Setting], sizes: _Sizes) -> Iterator[Claim]:
    share: dict[str, list[float]] = {name: [] for name in SETTINGS}
    change: dict[str, list[float]] = {name: [] for name in SETTINGS}
    causes = {name: Counter[str]() for name in SETTINGS}
    for setting in settings:
        for number in range(sizes.runs):
            found = _after(setting, setting.injected, number, longest=_LONGEST // sizes.shorter)
            share[setting.name].append(_delay(found, _SHARE))
            change[setting.name].append(_delay(found, _CHANGE))
            causes[setting.name].update(a.cause for w, a in found.items() if w == _CHANGE)
    headings = ("true flips", "share separates after", "change detected after", "called")
    table = Table("setting", *headings, title="Bias injected after 5,000 clean predictions")
    for name in SETTINGS:
        flips = [f"{s.before:.1%} → {s.after:.1%}" for s in settings if s.name == name]
        medians = [f"{statistics.median(d[name]):.0f}" for d in (share, change)]
        told = ", ".join(f"{cause} {n}" for cause, n in causes[name].most_common())
        table.add_row(name, "\n".join(flips), *medians, told)
    Console().print(table)
    first, everywhere = next(iter(SETTINGS)), [d for delays in share.values() for d in delays]
    runs = len(share[first])
    called = sum(causes.values(), Counter[str]())
    yield _delays("until the flip share separates, fair start, strong proxies", share[first], 1_000)
    yield Claim(
        claim=f"runs of all settings whose flip share separates within {_LONGEST}",
        figure=sum(delay < _LONGEST for delay in everywhere) / len(everywhere),
        unit="of runs",
        side="at least",
        bar=1,
        rounds=len(everywhere),
        details={name: statistics.median(delays) for name, delays in share.items()},
    )
    yield _delays("until the change is detected, fair start, strong proxies", change[first], 200)
    yield Claim(
        claim="injected bias that is called treatment, all settings",
        figure=called["treatment"] / max(sum(called.values()), 1),
        unit="of change alarms",
        side="at least",
        bar=0.8,
        rounds=4 * runs,
        details=dict(called),
    )


def _benign(settings: list[Setting], sizes: _Sizes) -> Claim:
    length, alarms = 20_000 // sizes.shorter, Counter[str]()
    for setting in settings:
        # An epoch on unchanged labels can make a classifier less fair; then an alarm is no error.
        rise = setting.after_tuning - setting.before
        kind = "true flips rose" if rise > _RISE else "not risen"
        for number in range(sizes.runs):
            found = _after(setting, setting.tuned, number, longest=length, stop=False)
            alarms.update([f"{kind}, runs", *[f"{kind}, alarmed"] * (_SHARE in found)])
            alarms.update(["change alarms"] * (_CHANGE in found))
    stated = _LEVEL + (_CLEAN + length + 500) / _RUN_LENGTH
    runs = alarms["not risen, runs"]
    return Claim(
        claim="flip shares that separate after a fine-tune that left true flips as they were",
        figure=alarms["not risen, alarmed"],
        unit=f"of {runs} runs",
        side="at most",
        bar=float(binom.ppf(0.999, runs, stated)),
        rounds=runs,
        details={"stated": f"{stated:.1%}", "risen is more than": _RISE, **alarms},
    )


def _other_people(settings: list[Setting], sizes: _Sizes) -> Claim:
    causes: dict[str, Counter[str]] = {}
    for setting in settings:
        for name, pool in setting.shifted.items():
            for number in range(sizes.runs):
                found = _after(setting, pool, number, longest=10_000 // sizes.shorter, stop=False)
                alarms = sorted(
                    (a for w, a in found.items() if w in (_CHANGE, _SHARE)), key=lambda a: a.at
                )
                told = alarms[0].cause if alarms else "no alarm"
                causes.setdefault(name, Counter()).update([told])
    outcomes = ("covariates", "unclear", "treatment", "no alarm")
    table = Table("people", *outcomes, title="First alarm of expected change or flip share")
    for name, counts in causes.items():
        table.add_row(name, *(str(counts[outcome]) for outcome in outcomes))
    Console().print(table)
    called = sum(causes.values(), Counter[str]())
    alarmed = sum(called.values()) - called["no alarm"]
    return Claim(
        claim="alarms by other people, not by bias, that are called covariates",
        figure=called["covariates"] / max(alarmed, 1),
        unit="of runs that alarm",
        side="at least",
        bar=0.8,
        rounds=alarmed,
        details=dict(called),
    )


def _cost(setting: Setting, *, scale: Scale) -> Iterator[Claim]:
    rng, pool = np.random.default_rng(_SEED), setting.clean.of("sex")
    rows = pool.drawn(rng, 10_000)
    reference = DriftReference.take(rows.margin, rows.attributes, seed=_SEED)
    drift = _watch(reference, rng)
    batches = [pool.drawn(rng, 32) for _ in range(100)] * 10
    rounds = []
    for _ in range(scale.pick(full=9, quick=9, smoke=1)):
        started = time.perf_counter()
        for batch in batches:
            drift.update(batch)
        rounds.append((time.perf_counter() - started) / 32_000 * 1e6)
    yield Claim(
        claim="time of a prediction, one attribute of two groups, batches of 32",
        figure=statistics.median(rounds),
        unit="µs",
        side="at most",
        bar=2,
        rounds=len(rounds),
        details={"fastest round": min(rounds), "slowest round": max(rounds)},
    )
    drift, most = _watch(reference, rng), scale.pick(full=1_000_000, quick=100_000, smoke=2_000)
    run(drift, [(pool, 1_000)], rng)
    before = len(drift.to_npz())
    run(drift, [(pool, most - 1_000)], rng)
    for alarm in drift.alarms:
        drift.acknowledge(alarm.watcher)
    yield Claim(
        claim=f"growth of the state between 1,000 and {most} predictions",
        figure=len(drift.to_npz()) - before,
        unit="bytes",
        side="at most",
        bar=500,
        rounds=1,
        details={"bytes": before},
    )


def _after(
    setting: Setting, pool: Pool, number: int, *, longest: int, stop: bool = True
) -> dict[Watcher, Alarm]:
    """Alarms that a change raises after clean predictions; those before it are acknowledged.

    With `stop`, no more is fed than until the share has separated and every cause is settled.
    """
    rng = np.random.default_rng(_SEED + number)
    drift = _watch(setting.reference, rng)
    run(drift, [(setting.clean, _CLEAN)], rng)
    for alarm in drift.alarms:
        drift.acknowledge(alarm.watcher)
    while drift.seen < _CLEAN + longest:
        run(drift, [(pool, 500)], rng)
        found = {alarm.watcher: alarm for alarm in drift.alarms}
        settled = [w in found and found[w].cause != "unclear" for w in (_SHARE, _CHANGE)]
        if stop and all(settled):
            break
    return {alarm.watcher: alarm for alarm in drift.alarms}


def _delay(found: dict[Watcher, Alarm], watcher: Watcher) -> float:
    return found[watcher].at - _CLEAN if watcher in found else math.inf


def _delays(what: str, delays: list[float], bar: float) -> Claim:
    return Claim(
        claim=f"predictions {what}, median",
        figure=statistics.median(delays),
        unit="predictions",
        side="at most",
        bar=bar,
        rounds=len(delays),
        details={"shortest": min(delays), "longest": max(delays)},
    )


def _watch(reference: DriftReference, rng: np.random.Generator) -> Drift:
    return Drift.start(reference, bundle_digest="", level=_LEVEL, run_length=_RUN_LENGTH, rng=rng)


if __name__ == "__main__":
    report("Drift: bands, false alarms, delays, causes and cost", measure)
