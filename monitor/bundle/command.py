"""`evenhand bundle`: what a bundle is for, whether it is sound, and its compiled code."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click

from monitor.bundle.manifest import BundleSpec, Manifest
from monitor.bundle.probe import probe_features
from monitor.bundle.reader import Bundle
from monitor.config import load_config
from monitor.errors import ClassifierError, KernelError
from monitor.settings import Config

__all__ = ["bundle"]


# Not checked by click, so that every flaw is told in our own words.
_PATH = click.Path(path_type=Path, readable=False)


@click.group()
def bundle() -> None:
    """Inspect, verify or compile a bundle."""


def _takes_a_bundle(command: Callable[..., None]) -> Callable[..., None]:
    """The argument and options by which every command is told of a bundle."""
    for option in (
        click.argument("path", type=_PATH, required=False),
        click.option("--pin", metavar="SHA256", help="Digest that the manifest must have."),
        click.option(
            "--config",
            "file",
            type=_PATH,
            help="A config that names bundle and pin.",
        ),
    ):
        command = option(command)
    return command


@bundle.command()
@_takes_a_bundle
def inspect(path: Path | None, pin: str | None, file: Path | None) -> None:
    """Print what a bundle is for.

    Checks every hash of the bundle at PATH, and runs nothing of it.
    """
    _, found = _open(path, pin, file)
    for name, text in _description(found.manifest):
        click.echo(f"{name:<12}{text}")
    click.echo(f"{'digest':<12}{found.manifest_sha256}")


@bundle.command()
@_takes_a_bundle
def verify(path: Path | None, pin: str | None, file: Path | None) -> None:
    """Check a bundle to the last byte.

    Then tries the classifier of the bundle at PATH on made-up people. Exit code 2 on any flaw.
    """
    config, found = _open(path, pin, file)
    import torch

    torch.set_num_threads(config.compute.threads)
    rows = config.bundle.probe_rows
    try:
        classifier = found.classifier(probe_rows=rows)
    except ClassifierError as error:
        raise type(error)(f"{config.bundle.path}: {error}") from None
    manifest = found.manifest
    features = torch.from_numpy(probe_features(manifest, rows))
    with torch.inference_mode():
        scores, decided = classifier.logit(features).sigmoid(), classifier.decide(features)
    click.echo(f"sound: {manifest.model.name} version {manifest.model.version}, every hash right")
    click.echo(
        f"classifier tried on {rows} made-up people: scores {scores.min():.3g} to "
        f"{scores.max():.3g}, {int(decided.sum())} {manifest.decision.class_names[1]}"
    )
    if "status.pt2" in found.files:
        from monitor.judge import Judge

        # Warnings say on the screen what the line below says.
        judge = Judge.load(found, warn=False)
        rows = min(len(v) for a in judge.baseline.scores.values() for v in a.values())
        names = ", ".join(attribute.name for attribute in manifest.protected_attributes)
        click.echo(f"judges by {names}, against a baseline of {rows:,} people")
        click.echo(f"judged by {judge.code_in_words}")
    else:
        click.echo("judges nothing: it was not made by `evenhand fit`")
    pinned = "as pinned" if config.bundle.manifest_sha256 else "not pinned"
    click.echo(f"manifest digest, {pinned}: {found.manifest_sha256}")


@bundle.command("compile")
@_takes_a_bundle
@click.option(
    "--for", "levels", multiple=True, type=click.Choice(["avx2", "avx512"]),
    help="Instructions that the processor has; by default what this one has. May be repeated.",
)  # fmt: skip
@click.option("--alone", is_flag=True, help="Leave out compiled code that is there already.")
def compile_(
    *, path: Path | None, pin: str | None, file: Path | None, levels: tuple[str, ...], alone: bool
) -> None:
    """Compile what judges predictions.

    Puts native code into the bundle at PATH, beside any for other versions of torch and other
    processors. Needs a C++ compiler here, and none where the bundle is used.
    """
    config, found = _open(path, pin, file)
    from monitor.bundle.writer import check_target, write_bundle
    from monitor.judge import Judge
    from monitor.kernel import Target, load_kernel
    from monitor.kernel.compiling import compile_kernel

    assert config.bundle.path is not None
    check_target(config.bundle.path, replace=True)
    here = Target.here()
    if here is None:
        raise KernelError("nothing is compiled for this kind of processor")
    bare = _without_kernels(found)
    sensitivity = Judge.load(replace(found, files=bare), warn=False).sensitivity
    files = dict(bare if alone else found.files)
    if not found.pinned and len(bare) < len(files):
        # Its maker is not known: it must not get a place under a digest that we say to pin.
        raise KernelError(
            f"{config.bundle.path}: holds compiled code, and its manifest is not pinned; --pin "
            "keeps that code, --alone leaves it out"
        )
    for target in [Target(here.torch, level) for level in levels or (here.level,)]:
        click.echo(f"compiling for torch {target.torch} on {target.level}", err=True)
        files[target.file] = compile_kernel(sensitivity, target)
        load_kernel(files[target.file], target, sensitivity)
    made = write_bundle(
        config.bundle.path,
        BundleSpec.model_validate(
            {name: getattr(found.manifest, name) for name in BundleSpec.model_fields}
        ),
        files,
        replace=True,
        probe_rows=config.bundle.probe_rows,
    )
    click.echo(f"compiled and tried: {config.bundle.path}")
    click.echo(f"manifest digest, to pin: {made.manifest_sha256}")


def _without_kernels(found: Bundle) -> dict[str, bytes]:
    return {name: data for name, data in found.files.items() if not name.startswith("kernel/")}


def _open(path: Path | None, pin: str | None, file: Path | None) -> tuple[Config, Bundle]:
    """The config with what the command line overrides, and the bundle it names."""
    config = load_config(file)
    if pin is not None and not re.fullmatch("[0-9a-f]{64}", pin := pin.strip().lower()):
        raise click.UsageError("--pin takes a SHA-256 digest, 64 characters 0-9 a-f.")
    given = {"path": path, "manifest_sha256": pin}
    settings = config.bundle.model_copy(update={k: v for k, v in given.items() if v is not None})
    if settings.path is None:
        raise click.UsageError("Missing PATH: name a bundle, or a config whose bundle.path does.")
    found = Bundle.read(
        settings.path, manifest_sha256=settings.manifest_sha256, max_bytes=settings.max_bytes
    )
    return config.model_copy(update={"bundle": settings}), found


def _description(manifest: Manifest) -> Iterator[tuple[str, str]]:
    classifier, decision, fitted = manifest.classifier, manifest.decision, manifest.fitted
    unfavourable, favourable = decision.class_names[:: 1 if decision.favourable else -1]
    yield "model", f"{manifest.model.name}, version {manifest.model.version}"
    yield "classifier", f"{classifier.file}, returns {classifier.output.replace('_', ' ')}"
    kinds = Counter(feature.kind for feature in manifest.features)
    yield "features", f"{manifest.width} columns: {', '.join(f'{n} {k}' for k, n in kinds.items())}"
    for group in manifest.one_hot_groups:
        dropped = f", and {group.dropped} without a column" if group.dropped else ""
        yield "one-hot", f"{group.name}, {len(group.features)} columns{dropped}"
    for attribute in manifest.protected_attributes:
        place = f"feature {attribute.feature}" if attribute.feature else "hidden from the model"
        yield "protected", f"{attribute.name}: {', '.join(attribute.groups)} ({place})"
    yield (
        "decision",
        f"{decision.class_names[1]} if P ≥ {decision.threshold:g}, else {decision.class_names[0]}",
    )
    yield "favourable", f"{favourable}, not {unfavourable}"
    at = fitted.at.astimezone(dt.UTC)
    yield "fitted", f"{at:%Y-%m-%d %H:%M} UTC on {fitted.rows:,} rows, seed {fitted.seed}"
    yield "made with", f"evenhand {fitted.evenhand}, torch {fitted.torch}"
    if fitted.notes:
        yield "notes", fitted.notes
    for name, entry in manifest.files.items():
        yield "file", f"{name}, {entry.bytes:,} bytes, sha256 {entry.sha256[:12]}…"
