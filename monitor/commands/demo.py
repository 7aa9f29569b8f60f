"""`evenhand demo`: from a biased classifier to evidence in the log."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import click
from rich.console import Console

from monitor.bundle.writer import check_target
from monitor.demo.evidence import clear_logs, evidence
from monitor.demo.lender import lender
from monitor.demo.production import production

__all__ = ["demo"]


@click.command()
@click.option(
    "--people",
    default=60_000,
    show_default=True,
    type=click.IntRange(5_000, 10_000_000),
    help="Number of synthetic people per data set.",
)
@click.option(
    "--seed", default=7, show_default=True, type=click.IntRange(0, 2**31 - 1),
    help="Seed of the random generator.",
)  # fmt: skip
@click.option(
    "--out", default="evenhand-demo", show_default=True, type=click.Path(path_type=Path),
    help="Directory of the demo's files.",
)  # fmt: skip
@click.option(
    "--compile/--no-compile", "compiled", default=True, show_default=True,
    help="Compile the scoring pass.",
)  # fmt: skip
def demo(*, people: int, seed: int, out: Path, compiled: bool) -> None:
    """Train a biased classifier on a synthetic world, fit a bundle, serve it and read its log."""
    for name in ("bundle", "fair", "retrained"):
        check_target(out / name, replace=True)
    clear_logs(out)
    console = Console(highlight=False, markup=False)
    started = time.monotonic()
    result = lender(console, people, seed, out, compiled=compiled)
    responses = production(console, result, people, seed, out)
    evidence(console, result, responses, seed, out)
    console.print(f"\nDone in {time.monotonic() - started:.0f} s. Next steps:")
    command = "evenhand" if shutil.which("evenhand") else f"{sys.executable} -m monitor"
    pin = result.bundle.manifest_sha256
    for arguments in (
        "bundle inspect {}",
        "bundle verify {} --pin {}",
        "serve --bundle {} --pin {}",
    ):
        console.print(f"  {command} {arguments.format(result.path, pin)}", soft_wrap=True)
