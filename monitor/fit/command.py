"""`evenhand fit`: a bundle from a classifier, its data and a spec."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, TaskID

from monitor.errors import FitError
from monitor.fit.data import read_data
from monitor.fit.spec import read_spec
from monitor.fit.suggest import suggest_spec

__all__ = ["ProgressBars", "fit"]

_PATH = click.Path(path_type=Path, readable=False)


@click.command()
@click.option("--classifier", type=_PATH, help="The model: torch.export (.pt2) or TorchScript.")
@click.option("--data", type=_PATH, help="Rows with groups, .parquet or .csv.")
@click.option("--spec", type=_PATH, help="What the columns are, a YAML file.")
@click.option("--out", type=_PATH, help="Where the bundle goes: a folder, or a file *.tar.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**31 - 1))
@click.option("--replace", is_flag=True, help="Replace the bundle that is there.")
@click.option(
    "--compile/--no-compile", "compiled", default=True, show_default=True,
    help="Compile what judges a prediction: half a minute, and many times faster ever after.",
)  # fmt: skip
@click.option(
    "--suggest-spec", "suggest", type=_PATH, metavar="DATA",
    help="Write a commented spec for DATA, to --spec or else to the screen, and stop.",
)  # fmt: skip
def fit(
    *, classifier: Path | None, data: Path | None, spec: Path | None, out: Path | None, seed: int,
    replace: bool, compiled: bool, suggest: Path | None,
) -> None:  # fmt: skip
    """Learn what judges a classifier's predictions, audit it, and write a bundle."""
    if suggest is not None:
        _suggest(suggest, spec)
        return
    given = {"--classifier": classifier, "--data": data, "--spec": spec, "--out": out}
    if absent := [name for name, value in given.items() if value is None]:
        raise click.UsageError(f"Missing {', '.join(absent)}.")
    assert classifier is not None
    assert data is not None
    assert spec is not None
    assert out is not None
    described = read_spec(spec)
    rows = read_data(data, described)
    from monitor.fit.run import fit as run

    with Progress(console=Console(stderr=True)) as progress:
        result = run(
            classifier,
            rows,
            described,
            out,
            seed=seed,
            replace=replace,
            compiled=compiled,
            progress=ProgressBars(progress),
        )
    click.echo(result.audit.text())
    click.echo(f"bundle: {out} (audit.txt, audit.json and audit.png are in it)")
    click.echo(result.compiled_in_words)
    click.echo(f"manifest digest, to pin: {result.bundle.manifest_sha256}")


class ProgressBars:
    """A bar for each thing that is being done."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.tasks: dict[str, TaskID] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how far one thing has come."""
        if what not in self.tasks:
            self.tasks[what] = self.progress.add_task(what)
        self.progress.update(self.tasks[what], completed=done, total=total)


def _suggest(data: Path, spec: Path | None) -> None:
    text = suggest_spec(data)
    if spec is None:
        click.echo(text, nl=False)
        return
    try:
        with spec.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise FitError(f"{spec}: already exists; it is left alone") from None
    except OSError as error:
        raise FitError(f"{spec}: cannot be written: {error.strerror or error}") from None
    click.echo(f"wrote {spec}; check every line of it")
