"""`evenhand bundle`: inspect, verify, compile and update a bundle."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.bundle.manifest import BundleSpec, Manifest
from monitor.bundle.reader import Bundle
from monitor.config import load_config
from monitor.errors import ClassifierError, KernelError
from monitor.npz import read_npz
from monitor.settings import Config

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["bundle"]


# Not checked by click, so that errors have our own messages.
_PATH = click.Path(path_type=Path, readable=False)


@click.group()
def bundle() -> None:
    """Inspect, verify, compile or update a bundle."""


def _takes_a_bundle(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument and options that locate a bundle."""
    for option in (
        click.argument("path", type=_PATH, required=False),
        click.option("--pin", metavar="SHA256", help="SHA-256 digest that the manifest must have."),
        click.option(
            "--config",
            "file",
            type=_PATH,
            help="Config file with bundle.path and bundle.manifest_sha256.",
        ),
    ):
        command = option(command)
    return command


@bundle.command()
@_takes_a_bundle
def inspect(path: Path | None, pin: str | None, file: Path | None) -> None:
    """Describe the bundle at PATH.

    Checks all hashes, and runs no code of the bundle.
    """
    _, loaded = _open(path, pin, file)
    for name, text in [*_description(loaded.manifest), *_draws(loaded)]:
        click.echo(f"{name:<12}{text}")
    click.echo(f"{'digest':<12}{loaded.manifest_sha256}")


@bundle.command()
@_takes_a_bundle
def verify(path: Path | None, pin: str | None, file: Path | None) -> None:
    """Verify the bundle at PATH.

    Checks all hashes, loads the classifier and tests it on probe rows. Exit code 2 on failure.
    """
    config, loaded = _open(path, pin, file)
    import torch

    from monitor.bundle.classifier import probe_features

    torch.set_num_threads(config.compute.threads)
    rows = config.bundle.probe_rows
    try:
        classifier = loaded.classifier(probe_rows=rows)
    except ClassifierError as error:
        raise type(error)(f"{config.bundle.path}: {error}") from None
    manifest = loaded.manifest
    features = torch.from_numpy(probe_features(manifest, rows))
    with torch.inference_mode():
        scores, decided = classifier.logit(features).sigmoid(), classifier.decide(features)
    click.echo(f"valid: {manifest.model.name} version {manifest.model.version}, all hashes match")
    click.echo(
        f"classifier tested on {rows} probe rows: scores {scores.min():.3g} to "
        f"{scores.max():.3g}, decision {manifest.decision.class_names[1]!r} for "
        f"{int(decided.sum())} of {rows}"
    )
    if len(decided.unique()) < 2:
        click.echo(
            "warning: all probe rows get the same decision; check that the features are listed in "
            "the order of the classifier's input, and scaled and encoded as in its training"
        )
    if loaded.doubt:
        click.echo(f"warning: the audit established no share of flips: {loaded.doubt}")
    if "status.pt2" in loaded.files:
        from monitor.scoring.judge import Judge

        # The lines below say what the warnings would.
        judge = Judge.load(loaded, warn=False)
        rows = min(len(v) for a in judge.baseline.scores.values() for v in a.values())
        names = ", ".join(attribute.name for attribute in manifest.protected_attributes)
        click.echo(f"scores by {names}, with a baseline of {rows:,} rows")
        click.echo(f"scored by {judge.code_in_words}")
    else:
        click.echo("no scoring: the bundle was not created by `evenhand fit`")
    pinned = "pinned" if config.bundle.manifest_sha256 else "not pinned"
    click.echo(f"manifest digest ({pinned}): {loaded.manifest_sha256}")


@bundle.command("compile")
@_takes_a_bundle
@click.option(
    "--for", "levels", multiple=True, type=click.Choice(["avx2", "avx512"]),
    help="Instruction set of the target processor; default: this machine's. May be repeated.",
)  # fmt: skip
@click.option("--alone", is_flag=True, help="Drop existing compiled code.")
def compile_(
    *, path: Path | None, pin: str | None, file: Path | None, levels: tuple[str, ...], alone: bool
) -> None:
    """Compile the scoring pass of the bundle at PATH.

    Adds native code to the bundle, next to code for other versions of torch and other processors.
    Needs a C++ compiler on this machine, but not where the bundle is served.
    """
    config, loaded = _open(path, pin, file)
    from monitor.bundle.writer import check_target, write_bundle
    from monitor.scoring.compiling import compile_kernel
    from monitor.scoring.judge import Judge
    from monitor.scoring.kernel import Target, load_kernel

    assert config.bundle.path is not None
    check_target(config.bundle.path, replace=True)
    here = Target.here()
    if here is None:
        raise KernelError("this processor is not supported")
    bare = _without_kernels(loaded)
    sensitivity = Judge.load(replace(loaded, files=bare), warn=False).sensitivity
    files = dict(bare if alone else loaded.files)
    if not loaded.pinned and len(bare) < len(files):
        # Code from an unknown source must not get under a digest that we tell the user to pin.
        raise KernelError(
            f"{config.bundle.path}: contains compiled code, but its manifest is not pinned; use "
            "--pin to keep that code, or --alone to drop it"
        )
    for target in [Target(here.torch, level) for level in levels or (here.level,)]:
        click.echo(f"compiling for torch {target.torch} on {target.level}", err=True)
        files[target.file] = compile_kernel(sensitivity, target)
        load_kernel(files[target.file], target, sensitivity)
    made = write_bundle(
        config.bundle.path,
        BundleSpec.model_validate(
            {name: getattr(loaded.manifest, name) for name in BundleSpec.model_fields}
        ),
        files,
        replace=True,
        probe_rows=config.bundle.probe_rows,
    )
    click.echo(f"compiled and tested: {config.bundle.path}")
    click.echo(f"manifest digest (pin this): {made.manifest_sha256}")


@bundle.command()
@_takes_a_bundle
@click.option("--classifier", type=_PATH, required=True, help="New model file, as for `fit`.")
@click.option("--out", type=_PATH, required=True, help="Path of the new bundle.")
@click.option("--model-version", help="Version; default: the old one and digits of the new hash.")
@click.option("--data", type=_PATH, help="Rows to compare on, .parquet or .csv; no groups needed.")
@click.option("--log", "log_path", help="Traffic log to compare on: its newest 20,000 rows.")
@click.option("--replace", "replace_", is_flag=True, help="Replace an existing bundle.")
@click.option(
    "--compile/--no-compile", "compiled", default=True, show_default=True,
    help="Compile the scoring pass: takes half a minute, makes scoring many times faster.",
)  # fmt: skip
def update(
    *, path: Path | None, pin: str | None, file: Path | None, classifier: Path, out: Path,
    model_version: str | None, data: Path | None, log_path: str | None, replace_: bool,
    compiled: bool,
) -> None:  # fmt: skip
    """Replace the classifier of the bundle at PATH, and keep its baseline.

    Writes a new bundle, and prints what changes and whether to fit again. Status model, transport
    maps, baseline and drift reference are kept; compiled code and the audit are not.
    """
    if data is not None and log_path is not None:
        raise click.UsageError("Give --data or --log, not both.")
    _, loaded = _open(path, pin, file)
    from rich.console import Console
    from rich.progress import Progress

    from monitor.commands.progress import ProgressBars
    from monitor.fitting.update import update_bundle

    rows, source = _comparison_rows(loaded.manifest, data, log_path)
    with Progress(console=Console(stderr=True)) as progress:
        result = update_bundle(
            loaded,
            classifier,
            out,
            rows=rows,
            source=source,
            model_version=model_version,
            replace=replace_,
            compiled=compiled,
            progress=ProgressBars(progress),
        )
    old, new = loaded.manifest.model, result.bundle.manifest.model
    click.echo(f"{new.name}: version {old.version} is replaced by version {new.version}")
    click.echo(result.comparison.text())
    click.echo(result.spread_in_words)
    click.echo(f"bundle: {out} (dropped: {', '.join(result.dropped) or 'nothing'})")
    click.echo(result.compiled_in_words)
    click.echo(f"manifest digest (pin this): {result.bundle.manifest_sha256}")


def _comparison_rows(
    manifest: Manifest, data: Path | None, log_path: str | None
) -> tuple[NDArray[np.float32] | None, str]:
    """Rows to compare classifiers on, and their source in words; None for probe rows."""
    if data is not None:
        from monitor.fitting.data import read_features

        return read_features(data, manifest), f"rows of {data}"
    if log_path is not None:
        from monitor.fitting.scored_rows import MOST_SCORED
        from monitor.traffic.features import read_logged_features

        logged = read_logged_features(log_path, manifest, MOST_SCORED)
        skipped = f", without {logged.skipped:,} with missing values" if logged.skipped else ""
        span = f"{logged.since:%Y-%m-%d %H:%M} to {logged.until:%Y-%m-%d %H:%M} UTC"
        return logged.features, f"newest predictions in {log_path}, {span}{skipped}"
    return None, ""


def _without_kernels(loaded: Bundle) -> dict[str, bytes]:
    return {name: data for name, data in loaded.files.items() if not name.startswith("kernel/")}


def _open(path: Path | None, pin: str | None, file: Path | None) -> tuple[Config, Bundle]:
    """The config with the options applied, and its bundle."""
    config = load_config(file)
    if pin is not None and not re.fullmatch("[0-9a-f]{64}", pin := pin.strip().lower()):
        raise click.UsageError("--pin: expected a SHA-256 digest, 64 characters 0-9 a-f.")
    options = {"path": path, "manifest_sha256": pin}
    settings = config.bundle.model_copy(update={k: v for k, v in options.items() if v is not None})
    if settings.path is None:
        raise click.UsageError("Missing PATH: give a bundle, or a config with bundle.path.")
    loaded = Bundle.read(
        settings.path, manifest_sha256=settings.manifest_sha256, max_bytes=settings.max_bytes
    )
    return config.model_copy(update={"bundle": settings}), loaded


def _draws(loaded: Bundle) -> Iterator[tuple[str, str]]:
    """Number of draws of each attribute's transport maps, as `fit` chose it."""
    if "maps.npz" not in loaded.files:
        return
    try:
        header, _ = read_npz(loaded.files["maps.npz"])
        named = zip(loaded.manifest.protected_attributes, header["draws"], strict=True)
        text = ", ".join(f"{attribute.name} {number:d}" for attribute, number in named)
    except Exception:  # noqa: BLE001 - damaged bytes can raise nearly any exception
        text = "not stored in maps.npz"
    yield "draws", text


def _description(manifest: Manifest) -> Iterator[tuple[str, str]]:
    classifier, decision, fitted = manifest.classifier, manifest.decision, manifest.fitted
    unfavourable, favourable = decision.class_names[:: 1 if decision.favourable else -1]
    yield "model", f"{manifest.model.name}, version {manifest.model.version}"
    yield "classifier", f"{classifier.file}, returns {classifier.output.replace('_', ' ')}"
    kinds = Counter(feature.kind for feature in manifest.features)
    yield "features", f"{manifest.width} columns: {', '.join(f'{n} {k}' for k, n in kinds.items())}"
    for raw in manifest.inputs:
        yield "raw input", f"{raw.name}, {raw.kind}, writes {', '.join(raw.columns)}"
    for group in manifest.one_hot_groups:
        dropped = f", dropped category: {group.dropped}" if group.dropped else ""
        yield "one-hot", f"{group.name}, {len(group.features)} columns{dropped}"
    for attribute in manifest.protected_attributes:
        source = f"feature {attribute.feature}" if attribute.feature else "not a feature"
        left_out = f"; excluded: {', '.join(attribute.excluded)}" if attribute.excluded else ""
        yield "protected", f"{attribute.name}: {', '.join(attribute.groups)} ({source}){left_out}"
    yield (
        "decision",
        f"{decision.class_names[1]} if P ≥ {decision.threshold:g}, else {decision.class_names[0]}",
    )
    yield "favourable", f"{favourable}, not {unfavourable}"
    at = fitted.at.astimezone(dt.UTC)
    yield "fitted", f"{at:%Y-%m-%d %H:%M} UTC on {fitted.rows:,} rows, seed {fitted.seed}"
    yield "created by", f"evenhand {fitted.evenhand}, torch {fitted.torch}"
    if fitted.notes:
        yield "notes", fitted.notes
    for name, entry in manifest.files.items():
        yield "file", f"{name}, {entry.bytes:,} bytes, sha256 {entry.sha256[:12]}…"
