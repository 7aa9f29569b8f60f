"""Part 2 of the demo: serve classifiers, withhold biased decisions, and detect drift."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
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

from monitor import AsyncClient, Bundle, FitData, Model
from monitor.client import Predictions
from monitor.commands.progress import ProgressBars
from monitor.demo.lender import Lender, lending_spec
from monitor.errors import ServeError

__all__ = ["production"]

_REQUESTS = 3_000
# Rows of the second bundle's fit.
_MOST_PEOPLE = 20_000
_CONCURRENT = 32
_THRESHOLD = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sidecar:
    """A running sidecar: its start-up message and addresses."""

    introduction: str
    grpc: str
    rest: str


def production(
    console: Console, lender: Lender, people: int, seed: int, out: Path
) -> list[Predictions]:
    """Run part 2: serve the biased classifier; then replace a fair classifier by a biased one.

    Returns:
        Responses of the biased classifier.
    """
    console.print()
    console.rule("Part 2: in production")
    responses = _withhold(console, lender, out)
    fair = _fit_fair(console, lender, people, seed, out)
    _replace(console, lender, fair, out)
    return responses


def _withhold(console: Console, lender: Lender, out: Path) -> list[Predictions]:
    """Serve the biased classifier, and withhold decisions that would probably flip."""
    policy = {"action": "withhold", "rule": "likely_flip", "flip_probability": _THRESHOLD}
    console.print(
        "\nA sidecar serves the bank's classifier. Clients call it like any model server, without "
        "groups. Policy: withhold decisions with a flip probability of at least "
        f"{_THRESHOLD:.0%}.\n"
    )
    logs = {"traffic": {"path": str(out / "log")}, "outcomes": {"path": str(out / "outcomes")}}
    with _serving(lender.path, lender.bundle, out, {"policy": policy, **logs}) as sidecar:
        console.print(sidecar.introduction, soft_wrap=True)
        rows = lender.test.features[:_REQUESTS]
        responses = _traffic(console, sidecar, rows, "sending requests")
        figures = _metrics(sidecar)
        withheld = np.isnan([response.output.item() for response in responses])
        _show_responses(console, responses, withheld)
    truth = _true_flips(lender, len(rows))
    of_withheld, of_others = truth[withheld].mean(), truth[~withheld].mean()
    console.print(
        f"\nOf {len(rows):,} decisions {withheld.sum():,} were withheld. In truth "
        f"{of_withheld:.0%} of them would flip for the same person in another group, and "
        f"{of_others:.0%} of the others."
    )
    labels = '{attribute="sex",model="lending",window="all"}'
    share, low, high = (
        figures[f"evenhand_flip_share{end}_ratio{labels}"] for end in ("", "_low", "_high")
    )
    console.print(
        f"The metrics at {sidecar.rest}/metrics estimate that {share:.1%} of decisions would flip "
        f"by sex (confidence band {low:.1%} to {high:.1%})."
    )
    return responses


def _fit_fair(console: Console, lender: Lender, people: int, seed: int, out: Path) -> Bundle:
    """Fit a bundle for the fair classifier, without compiled code."""
    from monitor import fit

    console.print("\nThe bank now deploys the fair classifier, with its own baseline.\n")
    sample = lender.test.world.people(min(people, _MOST_PEOPLE), seed=seed + 3)
    with Progress(console=console) as progress:
        return fit(
            lender.fair,
            FitData(features=sample.features, groups=sample.groups),
            lending_spec(lender.test.world).model_copy(
                update={"model": Model(name="lending", version="2")}
            ),
            out / "fair",
            seed=seed,
            replace=True,
            compiled=False,
            # Its audit is not shown.
            n_refits=0,
            progress=ProgressBars(progress),
        ).bundle


def _replace(console: Console, lender: Lender, fair: Bundle, out: Path) -> None:
    """Serve the fair classifier; then serve the biased one with the fair one's baseline."""
    rows = lender.test.features
    with _serving(out / "fair", fair, out, {}) as sidecar:
        before = _share_unusual(_traffic(console, sidecar, rows[:_REQUESTS], "sending requests"))
        alarms = _alarms(sidecar)
    console.print(
        f"After {_REQUESTS:,} requests: {before:.1%} of predictions are unusual, "
        f"{_description(alarms)}."
    )
    console.print(
        "\nThen a pipeline retrains the classifier on the bank's records overnight. `evenhand "
        "bundle update` replaces the classifier; columns and baseline are unchanged.\n"
    )
    retrained = _retrained(console, lender, fair, out)
    console.print("\nThe pipeline ignores that, and the new bundle goes live.\n")
    with _serving(out / "retrained", retrained, out, {}) as sidecar:
        next_day = rows[_REQUESTS : 2 * _REQUESTS]
        after = _share_unusual(_traffic(console, sidecar, next_day, "sending requests"))
        alarms = _alarms(sidecar)
    console.print(
        f"After {len(next_day):,} requests: {after:.1%} of predictions are unusual, "
        f"{_description(alarms)}."
    )
    if not alarms:
        raise ServeError("no drift alarm was raised for the biased classifier")
    console.print(
        "`share`: more decisions depend on a group than before. `treatment`: the classifier treats "
        "groups differently than before. The on-call engineer rolls back."
    )


def _share_unusual(responses: list[Predictions]) -> float:
    """Share of predictions with an unusual score for any attribute."""
    return float(np.mean(["evenhand_unusual" in r.parameters for r in responses]))


def _retrained(console: Console, lender: Lender, fair: Bundle, out: Path) -> Bundle:
    """Update the fair classifier's bundle with the biased classifier, and print what changes."""
    from monitor import update_bundle

    with Progress(console=console) as progress:
        result = update_bundle(
            fair,
            lender.biased,
            out / "retrained",
            rows=lender.test.features[:_REQUESTS],
            source="rows of today's requests",
            model_version="3",
            replace=True,
            compiled=False,
            progress=ProgressBars(progress),
        )
    console.print(result.comparison.text(), soft_wrap=True)
    return result.bundle


@contextmanager
def _serving(path: Path, bundle: Bundle, out: Path, settings: dict[str, Any]) -> Iterator[_Sidecar]:
    """Run `evenhand serve` in a subprocess on free ports; its config stays in `out`."""
    config = out / f"{path.name}.yaml"
    settings = {
        "bundle": {"path": str(path), "manifest_sha256": bundle.manifest_sha256},
        "server": {"grpc_port": 0, "rest_port": 0},
        **settings,
    }
    config.write_text(yaml.safe_dump(settings, sort_keys=False))
    command = [sys.executable, "-m", "monitor", "serve", "--config", str(config)]
    log = out / "serve.log"
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors)  # noqa: S603 - our own command
    try:
        yield _wait_for_start(process, log)
    finally:
        process.terminate()
        process.wait(timeout=60)


def _wait_for_start(process: subprocess.Popen[bytes], log: Path) -> _Sidecar:
    """Wait until a sidecar logs its introduction.

    Raises:
        ServeError: The sidecar did not start.
    """
    while process.poll() is None:
        for line in log.read_text().splitlines(keepends=True):
            if line.startswith("{") and line.endswith("\n") and '"rest_port"' in line:
                logged = json.loads(line)
                return _Sidecar(
                    introduction=logged["message"].replace(" | ", "\n  "),
                    grpc=f"127.0.0.1:{logged['grpc_port']}",
                    rest=f"http://127.0.0.1:{logged['rest_port']}",
                )
        time.sleep(0.05)
    raise ServeError(f"the sidecar did not start: {log.read_text().strip()[-500:]}")


def _traffic(
    console: Console, sidecar: _Sidecar, rows: NDArray[np.float32], description: str
) -> list[Predictions]:
    """Send one request per row, some of them concurrently."""
    with Progress(console=console) as progress:
        task = progress.add_task(description, total=len(rows))
        return asyncio.run(_send(sidecar, rows, partial(progress.advance, task)))


async def _send(sidecar: _Sidecar, rows: NDArray[np.float32], advance: Any) -> list[Predictions]:
    indices = iter(range(len(rows)))
    responses: dict[int, Predictions] = {}
    async with AsyncClient(sidecar.grpc, model="lending") as client:

        async def send() -> None:
            for index in indices:
                responses[index] = await client.predict(rows[index : index + 1])
                advance()

        await asyncio.gather(*(send() for _ in range(_CONCURRENT)))
    return [responses[index] for index in range(len(rows))]


def _show_responses(
    console: Console, responses: list[Predictions], withheld: NDArray[np.bool_]
) -> None:
    """Print two responses: a normal one and a withheld one."""
    table = Table("in the response", "normal", "withheld")
    normal, masked = responses[int(np.argmin(withheld))], responses[int(np.argmax(withheld))]
    names = ("verdict", "action", "likely_flip", "flip_probability_sex", "attribute")
    for name in (*names, "top_features"):
        key = f"evenhand_{name}"
        table.add_row(key, normal.parameters.get(key, ""), masked.parameters.get(key, ""))
    table.add_row("output", f"{normal.output.item():.3f}", f"{masked.output.item():.3f}")
    table.add_row("decision", normal.decisions[0], masked.decisions[0])
    console.print(table)


def _true_flips(lender: Lender, count: int) -> NDArray[np.bool_]:
    """Whether each of the first decisions would change for another sex or ethnicity, `[count]`."""
    from monitor import decide

    decision = partial(decide, lender.biased)
    flips = [lender.test.true_flips(decision, name) for name in lender.test.groups]
    either: NDArray[np.bool_] = np.logical_or(*flips)[:count]
    return either


def _metrics(sidecar: _Sidecar) -> dict[str, float]:
    """Samples of `/metrics` by name and labels."""
    lines = _get(f"{sidecar.rest}/metrics").decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def _alarms(sidecar: _Sidecar) -> list[dict[str, Any]]:
    alarms: list[dict[str, Any]] = json.loads(_get(f"{sidecar.rest}/v1/alarms"))
    return alarms


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as response:  # noqa: S310 - our own sidecar
        body: bytes = response.read()
        return body


def _description(alarms: list[dict[str, Any]]) -> str:
    if not alarms:
        return "no alarm"
    descriptions = [
        f"{a['detector']} of {a['attribute'] or 'all'} after {a['at_prediction']:,} predictions "
        f"({a['cause']})"
        for a in alarms
    ]
    return f"{len(descriptions)} alarms: " + ", ".join(descriptions)
