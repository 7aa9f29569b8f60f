"""The demo's first chapter: a lender, its classifier and what judges it."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from monitor import Bundle, Decision, FitData, FitSpec, Model, Population, World
from monitor.commands.progress import ProgressBars
from monitor.errors import BundleTamperedError
from monitor.fitting.spec import Output, ProtectedColumn

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Lender", "lender", "lending_spec"]

_BANK_RECORDS, _FAIRLY = "the bank's records", "repayment, fairly"

Decide = Callable[[NDArray[np.float32]], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lender:
    """What the first chapter leaves.

    Attributes:
        test: People that nothing was learned from.
        fair: A classifier that learned from repayment, fairly.
        biased: One that learned from the bank's records.
        bundle: What judges the biased one, as it was written.
        path: Where.
    """

    test: Population
    fair: nn.Module
    biased: nn.Module
    bundle: Bundle
    path: Path


def lender(console: Console, people: int, seed: int, out: Path, *, compiled: bool) -> Lender:
    """Chapter 1: build a world, train classifiers in it, fit what judges one of them."""
    console.rule("Chapter 1: a lender, its classifier and what judges it")
    train, test = _build_world(console, people, seed)
    classifiers = _train(console, train, seed)
    truth = _show_truth(console, test, classifiers)
    biased, path = classifiers[_BANK_RECORDS], out / "bundle"
    bundle = _fit(console, train, biased, truth, seed, path, compiled=compiled)
    _show_cost(console, bundle, biased, test)
    _tamper(console, path)
    return Lender(test=test, fair=classifiers[_FAIRLY], biased=biased, bundle=bundle, path=path)


def _build_world(console: Console, people: int, seed: int) -> tuple[Population, Population]:
    world = World()
    train, test = world.people(people, seed=seed), world.people(people, seed=seed + 1)
    console.print(
        f"\nA synthetic lending market: {people:,} people to learn from and {people:,} others to "
        f"look at, {len(world.features)} features each. Every person follows from written "
        "equations and noise of her own, so we know what she would have been in another group."
    )
    woman = train.groups["sex"] == 1
    lost = 1 - train.labels[train.repaid & woman].mean()
    console.print(
        "Sex and ethnicity are hidden from the classifier, but career gaps, sector, district and "
        f"the like give them away. And the bank's records are biased: of the women who repaid, "
        f"{lost:.0%} stand there as defaults."
    )
    return train, test


def _train(console: Console, train: Population, seed: int) -> dict[str, nn.Module]:
    from monitor import train_fair, train_proxy_biased

    trainers = {_BANK_RECORDS: train_proxy_biased, _FAIRLY: train_fair}
    trained: dict[str, nn.Module] = {}
    console.print()
    with Progress(console=console) as progress:
        for name, trainer in trainers.items():
            task = progress.add_task(f"learning from {name}")
            trained[name] = trainer(train, seed=seed, progress=partial(_advance, progress, task))
    return trained


def _advance(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


def _show_truth(
    console: Console, test: Population, classifiers: dict[str, nn.Module]
) -> dict[str, float]:
    """Print what each classifier does; the true flips of the one that learned from the bank."""
    from monitor import decide

    table = Table("learned from", "right", "men", "women", "flips by sex", "by ethnicity")
    sex = test.groups["sex"]
    truth: dict[str, float] = {}
    for name, classifier in classifiers.items():
        decision: Decide = partial(decide, classifier)
        granted = decision(test.features)
        flips = [float(test.true_flips(decision, a).mean()) for a in test.groups]
        truth = truth or dict(zip(test.groups, flips, strict=True))
        shares = [
            (granted == test.repaid).mean(),
            granted[sex == 0].mean(),
            granted[sex == 1].mean(),
        ]
        table.add_row(name, *(f"{share:.1%}" for share in (*shares, *flips)))
    console.print(
        "\nTwo classifiers, and what they do to people they have not seen: how often they are "
        "right about repayment, the share of men and of women who get the loan, and the decisions "
        "that flip."
    )
    console.print(table)
    console.print(
        "A flip is a decision that would be different for the very same person in another group: "
        f"up to {max(truth.values()):.0%} here, though nobody told the classifier who belongs to "
        "which. Finding those decisions one by one, without knowing anyone's group, is what "
        "evenhand is for."
    )
    return truth


def _fit(
    console: Console,
    train: Population,
    classifier: nn.Module,
    truth: dict[str, float],
    seed: int,
    path: Path,
    *,
    compiled: bool,
) -> Bundle:
    from monitor import fit

    world, people = train.world, len(train)

    console.print(
        f"\nNow we forget the truth, and learn from {people:,} other people whose groups are known "
        "what judges the bank's classifier: a model that guesses a person's group, maps between "
        "groups, and a baseline."
    )
    sample = world.people(people, seed=seed + 2)
    console.print()
    with Progress(console=console) as progress:
        result = fit(
            classifier,
            FitData(features=sample.features, groups=sample.groups),
            lending_spec(world),
            path,
            seed=seed,
            replace=True,
            compiled=compiled,
            progress=ProgressBars(progress),
        )
    console.print()
    console.print(result.audit.text(), soft_wrap=True)
    told = " and ".join(
        f"{audit.level.flip_share:.1%} by {name} where the truth is {truth[name]:.1%}"
        for name, audit in result.audit.attributes.items()
    )
    console.print(f"So, without anyone's group: {told}.\n")
    console.print(
        f"All of it is now a bundle in {path}: {len(result.bundle.files)} files and a manifest, no "
        "pickle. It was read back, hashed and tried on made-up people before it got its name."
    )
    console.print(f"Digest to pin in the config: {result.bundle.manifest_sha256}", soft_wrap=True)
    return result.bundle


def _show_cost(console: Console, bundle: Bundle, classifier: nn.Module, people: Population) -> None:
    """Print which code judges predictions, and what that costs beside making them."""
    import torch

    from monitor import Judge
    from monitor.threads import one_thread

    with one_thread():
        judge = Judge.load(bundle, warn=False)
        console.print(f"\nPredictions are judged by {judge.code_in_words}.", soft_wrap=True)
        table = Table("people at once", "the bare prediction", "judged as well", "uncompiled")
        for size in (1, 32, 256):
            rows = torch.from_numpy(people.features[:size])
            with torch.inference_mode():
                bare = _seconds(partial(classifier, rows))
            judged, eager = _seconds(partial(judge.scores, rows)), None
            if judge.kernel is not None:
                eager = _seconds(partial(judge.sensitivity.scores, rows))
            table.add_row(
                str(size),
                *(
                    "" if found is None else f"{found * 1e6:.0f} µs ({found / bare:.1f} ×)"
                    for found in (bare, judged, eager)
                ),
            )
    console.print(table)
    names = " and ".join(judge.sensitivity.maps)
    console.print(
        f"The bare prediction is the classifier's forward pass alone; judging it by {names} means "
        "gradients, counterfactuals and posteriors too, in the same call."
    )


def _seconds(call: Callable[[], object]) -> float:
    """Of one call: the middle of seven rounds, after one that warms up."""
    rounds = []
    for _ in range(8):
        started, calls = time.perf_counter(), 0
        while calls < 3 or time.perf_counter() - started < 0.02:
            call()
            calls += 1
        rounds.append((time.perf_counter() - started) / calls)
    return sorted(rounds[1:])[3]


def lending_spec(world: World) -> FitSpec:
    """What the lender's columns are."""
    return FitSpec(
        model=Model(name="lending", version="1"),
        classifier=Output(output="logit"),
        features=world.features,
        one_hot_groups=world.one_hot_groups,
        protected_attributes=tuple(
            ProtectedColumn(column=attribute.name, **attribute.model_dump())
            for attribute in world.attributes
        ),
        decision=Decision(class_names=("refused", "granted")),
    )


def _tamper(console: Console, path: Path) -> None:
    """Show, on a copy, that one changed bit is enough to be refused."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(path, Path(folder, "bundle"))
        file = copy / "classifier.pt2"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        try:
            Bundle.read(copy)
        except BundleTamperedError as refusal:
            reason = str(refusal).removeprefix(f"{copy}: ")
            console.print(f"One bit flipped in a copy of it, and it does not load: {reason}.")
        else:
            raise AssertionError("a tampered bundle was accepted")
