"""Part 1 of the demo: train a biased classifier, and fit a bundle for it."""

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

_BANK_RECORDS, _FAIR = "the bank's records", "true repayment"

Decide = Callable[[NDArray[np.float32]], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lender:
    """Result of part 1.

    Attributes:
        test: Held-out people.
        fair: Classifier trained on true repayment, without proxies.
        biased: Classifier trained on the bank's records.
        bundle: Bundle of the biased classifier.
        path: Path of the bundle.
    """

    test: Population
    fair: nn.Module
    biased: nn.Module
    bundle: Bundle
    path: Path


def lender(console: Console, people: int, seed: int, out: Path, *, compiled: bool) -> Lender:
    """Run part 1: draw people, train two classifiers, and fit a bundle for the biased one."""
    console.rule("Part 1: a lender's classifier and its bundle")
    train, test = _build_world(console, people, seed)
    classifiers = _train(console, train, seed)
    truth = _show_truth(console, test, classifiers)
    biased, path = classifiers[_BANK_RECORDS], out / "bundle"
    bundle = _fit(console, train, biased, truth, seed, path, compiled=compiled)
    _show_cost(console, bundle, biased, test)
    _tamper(console, path)
    return Lender(test=test, fair=classifiers[_FAIR], biased=biased, bundle=bundle, path=path)


def _build_world(console: Console, people: int, seed: int) -> tuple[Population, Population]:
    world = World()
    train, test = world.people(people, seed=seed), world.people(people, seed=seed + 1)
    console.print(
        f"\nA synthetic lending market: {people:,} people for training and {people:,} for testing, "
        f"with {len(world.features)} features. All features follow from known equations and random "
        "noise, so we know the features that each person would have in another group."
    )
    woman = train.groups["sex"] == 1
    wrong = 1 - train.labels[train.repaid & woman].mean()
    console.print(
        "Sex and ethnicity are not inputs of the classifier, but career gaps, sector, district and "
        "other features are proxies of them. The bank's records are biased: of the women who "
        f"repaid, {wrong:.0%} are recorded as defaults."
    )
    return train, test


def _train(console: Console, train: Population, seed: int) -> dict[str, nn.Module]:
    from monitor import train_fair, train_proxy_biased

    trainers = {_BANK_RECORDS: train_proxy_biased, _FAIR: train_fair}
    trained: dict[str, nn.Module] = {}
    console.print()
    with Progress(console=console) as progress:
        for name, trainer in trainers.items():
            task = progress.add_task(f"training on {name}")
            trained[name] = trainer(train, seed=seed, progress=partial(_advance, progress, task))
    return trained


def _advance(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


def _show_truth(
    console: Console, test: Population, classifiers: dict[str, nn.Module]
) -> dict[str, float]:
    """Print rates and true flips of both classifiers; return true flips of the biased one."""
    from monitor import decide

    table = Table("trained on", "accuracy", "men", "women", "flips by sex", "by ethnicity")
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
        "\nTwo classifiers on the test set: accuracy of the predicted repayment, share of men and "
        "of women who get the loan, and share of decisions that flip."
    )
    console.print(table)
    console.print(
        "A flip is a decision that would change for the same person in another group: up to "
        f"{max(truth.values()):.0%} here, although groups are not inputs of the classifier. "
        "evenhand detects such decisions one by one, without knowing anyone's group."
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
        f"\nThe truth is not used from here on. On {people:,} other people with known groups, and "
        "with the bank's records to check the classifier against, we fit what scores the bank's "
        "classifier: a model that predicts the group, transport maps between groups, and a "
        "baseline."
    )
    sample = world.people(people, seed=seed + 2)
    console.print()
    with Progress(console=console) as progress:
        result = fit(
            classifier,
            FitData(features=sample.features, groups=sample.groups, labels=sample.labels),
            lending_spec(world),
            path,
            seed=seed,
            replace=True,
            compiled=compiled,
            n_refits=10,
            progress=ProgressBars(progress),
        )
    console.print()
    console.print(result.audit.text(), soft_wrap=True)
    estimates = " and ".join(
        f"{audit.level.flip_share:.1%} by {name} (true value {truth[name]:.1%})"
        for name, audit in result.audit.attributes.items()
    )
    console.print(f"Estimated share of flips, without using groups: {estimates}.\n")
    console.print(
        f"The bundle is in {path}: {len(result.bundle.files)} files and a manifest, without "
        "pickles. It was read back, verified by its hashes and tested on probe rows."
    )
    console.print(f"Digest to pin in the config: {result.bundle.manifest_sha256}", soft_wrap=True)
    return result.bundle


def _show_cost(console: Console, bundle: Bundle, classifier: nn.Module, people: Population) -> None:
    """Print which code scores predictions, and its cost relative to the classifier alone."""
    import torch

    from monitor import Judge
    from monitor.threads import one_thread

    with one_thread():
        judge = Judge.load(bundle, warn=False)
        console.print(f"\nPredictions are scored by {judge.code_in_words}.", soft_wrap=True)
        table = Table("batch size", "classifier alone", "with scoring", "uncompiled")
        for size in (1, 32, 256):
            rows = torch.from_numpy(people.features[:size])
            with torch.inference_mode():
                bare = _seconds(partial(classifier, rows))
            scored, eager = _seconds(partial(judge.scores, rows)), None
            if judge.kernel is not None:
                eager = _seconds(partial(judge.sensitivity.scores, rows))
            table.add_row(
                str(size),
                *(
                    "" if seconds is None else f"{seconds * 1e6:.0f} µs ({seconds / bare:.1f} ×)"
                    for seconds in (bare, scored, eager)
                ),
            )
    console.print(table)
    names = " and ".join(judge.sensitivity.maps)
    console.print(
        f"Scoring by {names} computes gradients, counterfactuals and group probabilities in the "
        "same call as the prediction."
    )


def _seconds(call: Callable[[], object]) -> float:
    """Duration of one call: median of seven rounds after a warm-up."""
    rounds = []
    for _ in range(8):
        started, calls = time.perf_counter(), 0
        while calls < 3 or time.perf_counter() - started < 0.02:
            call()
            calls += 1
        rounds.append((time.perf_counter() - started) / calls)
    return sorted(rounds[1:])[3]


def lending_spec(world: World) -> FitSpec:
    """Spec of the lender's columns."""
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
    """Show on a copy of the bundle that one flipped bit is detected."""
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
            console.print(f"A copy of the bundle with one flipped bit is rejected: {reason}.")
        else:
            raise AssertionError("a tampered bundle was accepted")
