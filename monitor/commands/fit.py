"""`evenhand fit`: a bundle from a classifier, its data and a spec."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from monitor.commands.progress import ProgressBars
from monitor.errors import FitError
from monitor.fitting.spec import read_spec
from monitor.fitting.suggest import suggest_spec

__all__ = ["fit"]

_PATH = click.Path(path_type=Path, readable=False)


@click.command()
@click.option("--classifier", type=_PATH, help="Model file: torch.export (.pt2) or TorchScript.")
@click.option("--data", type=_PATH, help="Rows with features and groups, .parquet or .csv.")
@click.option("--spec", type=_PATH, help="YAML file that describes the columns.")
@click.option("--out", type=_PATH, help="Path of the bundle: a directory, or a .tar file.")
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0, 2**31 - 1),
    help="Seed of the random generator.",
)  # fmt: skip
@click.option("--replace", is_flag=True, help="Replace an existing bundle.")
@click.option(
    "--compile/--no-compile", "compiled", default=True, show_default=True,
    help="Compile the scoring pass: takes half a minute, makes scoring many times faster.",
)  # fmt: skip
@click.option(
    "--refits", default=20, show_default=True, type=click.IntRange(0),
    help="Refits for the interval of the share of flips; 0 for sampling error only.",
)  # fmt: skip
@click.option(
    "--suggest-spec", "suggest", type=_PATH, metavar="DATA",
    help="Write a suggested spec for DATA to --spec, or to stdout, and exit.",
)  # fmt: skip
def fit(
    *, classifier: Path | None, data: Path | None, spec: Path | None, out: Path | None, seed: int,
    replace: bool, compiled: bool, refits: int, suggest: Path | None,
) -> None:  # fmt: skip
    """Fit a bundle for a classifier, and audit the classifier."""
    if suggest is not None:
        _suggest(suggest, spec)
        return
    required = {"--classifier": classifier, "--data": data, "--spec": spec, "--out": out}
    if absent := [name for name, value in required.items() if value is None]:
        raise click.UsageError(f"Missing {', '.join(absent)}.")
    assert classifier is not None
    assert data is not None
    assert spec is not None
    assert out is not None
    fit_spec = read_spec(spec)
    from monitor.fitting.run import fit as run

    with Progress(console=Console(stderr=True)) as progress:
        result = run(
            classifier,
            data,
            fit_spec,
            out,
            seed=seed,
            replace=replace,
            compiled=compiled,
            n_refits=refits,
            progress=ProgressBars(progress),
        )
    click.echo(result.audit.text())
    click.echo(f"bundle: {out} (with audit.txt, audit.json and audit.png)")
    click.echo(result.compiled_in_words)
    click.echo(f"manifest digest (pin this): {result.bundle.manifest_sha256}")


def _suggest(data: Path, spec: Path | None) -> None:
    text = suggest_spec(data)
    if spec is None:
        click.echo(text, nl=False)
        return
    try:
        with spec.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise FitError(
            f"{spec}: already exists; it was not changed. Give another path as --spec, or delete "
            "the file first"
        ) from None
    except OSError as error:
        raise FitError(f"{spec}: cannot be written: {error.strerror or error}") from None
    click.echo(f"wrote {spec}; check every line")
