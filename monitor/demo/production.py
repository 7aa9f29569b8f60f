"""The demo's second chapter: the classifier in production, watched, held back, and gone astray."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from monitor import AsyncClient, Bundle, BundleSpec, FitData, Model, write_bundle
from monitor.client import Predictions
from monitor.commands.fit import ProgressBars
from monitor.demo.lender import Lender, lending_spec
from monitor.errors import ServeError

__all__ = ["production"]

_REQUESTS = 3_000
# To fit the second bundle on; the first has all.
_MOST_PEOPLE = 20_000
_AT_ONCE = 32
_BOUND = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sidecar:
    """A sidecar that answers."""

    introduction: str
    grpc: str
    rest: str


def production(
    console: Console, found: Lender, people: int, seed: int, out: Path
) -> list[Predictions]:
    """Serve what the first chapter made; then let a fair classifier be replaced by a biased one.

    Returns:
        What clients were answered on the first day.
    """
    console.print()
    console.rule("Chapter 2: in production")
    answers = _hold_back(console, found, out)
    fair = _fit_fair(console, found, people, seed, out)
    _go_astray(console, found, fair, out)
    return answers


def _hold_back(console: Console, found: Lender, out: Path) -> list[Predictions]:
    """Serve the biased classifier, and withhold what would flip."""
    policy = {"action": "withhold", "rule": "flip_probability", "flip_probability": _BOUND}
    console.print(
        "\nThe bank's classifier goes live behind a sidecar. Clients call it as they would call "
        "any model server; nobody tells it who belongs to which group. Policy: withhold a "
        f"decision that would flip with a chance of {_BOUND:.0%} or more.\n"
    )
    logs = {"traffic": {"path": str(out / "log")}, "outcomes": {"path": str(out / "outcomes")}}
    with _serving(found.path, found.bundle, out, {"policy": policy, **logs}) as sidecar:
        console.print(sidecar.introduction, soft_wrap=True)
        rows = found.test.features[:_REQUESTS]
        answers = _traffic(console, sidecar, rows, "asking")
        figures = _metrics(sidecar)
        held = np.isnan([answer.score.item() for answer in answers])
        _show_answers(console, answers, held)
    truth = _true_flips(found, len(rows))
    caught, passed = truth[held].mean(), truth[~held].mean()
    console.print(
        f"\nOf {len(rows):,} decisions {held.sum():,} were withheld. We know the truth here: "
        f"{caught:.0%} of them would really flip for the same person in another group, and "
        f"{passed:.0%} of those that were let through."
    )
    share = figures['evenhand_flip_share_ratio{attribute="sex",window="all"}']
    low = figures['evenhand_flip_share_low_ratio{attribute="sex",window="all"}']
    high = figures['evenhand_flip_share_high_ratio{attribute="sex",window="all"}']
    console.print(
        f"Prometheus sees that {share:.1%} of decisions would flip by sex (at every moment between "
        f"{low:.1%} and {high:.1%}), judged at {sidecar.rest}/metrics."
    )
    return answers


def _fit_fair(console: Console, found: Lender, people: int, seed: int, out: Path) -> Bundle:
    """A bundle of the fair classifier, uncompiled."""
    from monitor import fit

    console.print(
        "\nAlarmed, the bank deploys the fair classifier instead, with a baseline of its own.\n"
    )
    sample = found.test.world.people(min(people, _MOST_PEOPLE), seed=seed + 3)
    with Progress(console=console) as progress:
        return fit(
            found.fair,
            FitData(features=sample.features, groups=sample.groups),
            lending_spec(found.test.world).model_copy(
                update={"model": Model(name="lending", version="2")}
            ),
            out / "fair",
            seed=seed,
            replace=True,
            compiled=False,
            progress=ProgressBars(progress),
        ).bundle


def _go_astray(console: Console, found: Lender, fair: Bundle, out: Path) -> None:
    """The fair classifier is watched; then the biased one takes its place beside its baseline."""
    rows = found.test.features
    with _serving(out / "fair", fair, out, {}) as sidecar:
        before = _share_above(_traffic(console, sidecar, rows[:_REQUESTS], "a quiet day"))
        quiet = _alarms(sidecar)
    console.print(
        f"{_REQUESTS:,} requests later: {before:.1%} of predictions above the baseline, "
        f"{_in_words(quiet)}."
    )
    console.print(
        "\nAt night a pipeline retrains on the bank's records and puts the result in its place. "
        "Name and columns are as before; the baseline is still the fair one's.\n"
    )
    retrained = _retrained(found, fair, out)
    with _serving(out / "retrained", retrained, out, {}) as sidecar:
        next_day = rows[_REQUESTS : 2 * _REQUESTS]
        after = _share_above(_traffic(console, sidecar, next_day, "the next day"))
        raised = _alarms(sidecar)
    console.print(
        f"{len(next_day):,} requests later: {after:.1%} of predictions above the baseline, "
        f"{_in_words(raised)}."
    )
    if not raised:
        raise AssertionError("a biased classifier went unnoticed")
    console.print(
        "`share` says that more decisions depend on a group than before; `treatment`, that the "
        "same kind of people are treated differently. On-call rolls back."
    )


def _share_above(answers: list[Predictions]) -> float:
    """How many of some predictions depend more on a group than nearly all of the baseline did."""
    return float(np.mean([a.parameters["evenhand_verdict"] == "above" for a in answers]))


def _retrained(found: Lender, fair: Bundle, out: Path) -> Bundle:
    """The fair one's bundle with another classifier in it."""
    from monitor import export_classifier

    spec = {name: getattr(fair.manifest, name) for name in BundleSpec.model_fields}
    classifier = export_classifier(found.biased, fair.manifest.width)
    return write_bundle(
        out / "retrained",
        BundleSpec.model_validate({**spec, "model": Model(name="lending", version="3")}),
        {**fair.files, "classifier.pt2": classifier},
        replace=True,
    )


@contextmanager
def _serving(path: Path, bundle: Bundle, out: Path, settings: dict[str, Any]) -> Iterator[_Sidecar]:
    """`evenhand serve` in a process of its own, on free ports, with a config that is kept."""
    config = out / f"{path.name}.yaml"
    settings = {
        "bundle": {"path": str(path), "manifest_sha256": bundle.manifest_sha256},
        "server": {"grpc_port": 0, "rest_port": 0},
        "log": {"level": "warning"},
        **settings,
    }
    config.write_text(yaml.safe_dump(settings, sort_keys=False))
    command = [sys.executable, "-m", "monitor", "serve", "--config", str(config)]
    log = out / "serve.log"
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)  # noqa: S603 - our own command
    try:
        yield _introduced(process, log)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _introduced(process: subprocess.Popen[str], log: Path) -> _Sidecar:
    """Wait for a sidecar's start-up lines."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if line.startswith("  drift"):
            break
    else:
        raise ServeError(f"the sidecar did not start: {log.read_text().strip()[-500:]}")
    told = "\n".join(lines)
    ports = dict(re.findall(r"^  (gRPC|REST) +(?:http://)?(\S+)", told, re.MULTILINE))
    return _Sidecar(introduction=told, grpc=ports["gRPC"], rest=f"http://{ports['REST']}")


def _traffic(
    console: Console, sidecar: _Sidecar, rows: NDArray[np.float32], words: str
) -> list[Predictions]:
    """One request a person, some at a time."""
    with Progress(console=console) as progress:
        task = progress.add_task(words, total=len(rows))
        return asyncio.run(_ask(sidecar, rows, partial(progress.advance, task)))


async def _ask(sidecar: _Sidecar, rows: NDArray[np.float32], advance: Any) -> list[Predictions]:
    places = iter(range(len(rows)))
    answers: dict[int, Predictions] = {}
    async with AsyncClient(sidecar.grpc, model="lending") as client:

        async def ask() -> None:
            for place in places:
                answers[place] = await client.predict(rows[place : place + 1])
                advance()

        await asyncio.gather(*(ask() for _ in range(_AT_ONCE)))
    return [answers[place] for place in range(len(rows))]


def _show_answers(console: Console, answers: list[Predictions], held: NDArray[np.bool_]) -> None:
    """Two answers as a client sees them: one let through, one withheld."""
    table = Table("what a client sees", "let through", "withheld")
    let, kept = answers[int(np.argmin(held))], answers[int(np.argmax(held))]
    for name in ("verdict", "action", "flip_probability_sex", "attribute", "top_features"):
        mark = f"evenhand_{name}"
        table.add_row(mark, let.parameters.get(mark, ""), kept.parameters.get(mark, ""))
    table.add_row("score", f"{let.score.item():.3f}", f"{kept.score.item():.3f}")
    table.add_row("decision", let.decisions[0], kept.decisions[0])
    console.print(table)


def _true_flips(found: Lender, count: int) -> NDArray[np.bool_]:
    """Of the people who were asked about: whether another sex or ethnicity would change it."""
    from monitor import decide

    decision = partial(decide, found.biased)
    flips = [found.test.true_flips(decision, name) for name in found.test.groups]
    either: NDArray[np.bool_] = np.logical_or(*flips)[:count]
    return either


def _metrics(sidecar: _Sidecar) -> dict[str, float]:
    """Every sample that Prometheus would scrape, by its name and labels."""
    lines = _get(f"{sidecar.rest}/metrics").decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def _alarms(sidecar: _Sidecar) -> list[dict[str, Any]]:
    alarms: list[dict[str, Any]] = json.loads(_get(f"{sidecar.rest}/v1/alarms"))
    return alarms


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - our own sidecar
        body: bytes = answer.read()
        return body


def _in_words(alarms: list[dict[str, Any]]) -> str:
    if not alarms:
        return "no alarm"
    told = [
        f"{a['detector']} of {a['attribute'] or 'all'} after {a['at_prediction']:,} predictions "
        f"({a['cause']})"
        for a in alarms
    ]
    return f"{len(told)} alarms: " + ", ".join(told)
