"""`evenhand config`: what a config file and the variables amount to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from monitor.config import config_fields, load_config

__all__ = ["config"]


@click.group()
def config() -> None:
    """Check a config file and show what holds."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path, readable=False), required=False)
def check(file: Path | None) -> None:
    """Check FILE and the EVENHAND_… variables, and print every setting that would hold."""
    settings = load_config(file)
    for field in config_fields():
        value = getattr(getattr(settings, field.part), field.name)
        mark = "" if value == field.info.default else "  (set)"
        click.echo(f"{field.path} = {_shown(value)}{mark}")


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return str({name: part.model_dump(exclude_none=True) for name, part in value.items()})
    return str(value)
