"""`evenhand config`: check a config file, and print the reference of all settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from monitor.config import config_fields, load_config
from monitor.settings import Config

__all__ = ["config", "config_reference"]

_HEAD = """\
# Config reference

Generated from `monitor/settings.py` and `monitor/traffic/settings.py` by `make docs`; a test checks
that it is current.

One YAML file holds every setting. An environment variable overrides the file, and the file
overrides the default; an empty variable counts as unset. Unknown fields, unknown `EVENHAND_…`
variables and invalid values are errors: the program does not start, and the message names the
field, the value and what is allowed. `evenhand config check [FILE]` checks a config without
starting anything. Scalars are read as in YAML 1.2.
"""


@click.group()
def config() -> None:
    """Check a config file, or print the reference of all settings."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path, readable=False), required=False)
def check(file: Path | None) -> None:
    """Check FILE and the EVENHAND_… variables, and print the resulting settings."""
    settings = load_config(file)
    for field in config_fields():
        value = getattr(getattr(settings, field.part), field.name)
        changed = "" if value == field.info.default else "  (set)"
        click.echo(f"{field.path} = {_shown(value)}{changed}")


@config.command()
def reference() -> None:
    """Print every setting with its variable, allowed values and default, in Markdown."""
    click.echo(config_reference(), nl=False)


def config_reference() -> str:
    """The reference page of all settings, in Markdown."""
    lines = [_HEAD]
    for part, info in Config.model_fields.items():
        lines += [f"## {part}", "", f"{info.annotation.__doc__}", ""]
        lines += ["| field | variable | allowed | default | description |"]
        lines += ["| --- | --- | --- | --- | --- |"]
        lines += [
            f"| `{field.path}` | `{field.variable}` | {field.allowed} "
            f"| {_default(field.info.default)} | {field.info.description} |"
            for field in config_fields()
            if field.part == part
        ]
        lines += [""]
    return "\n".join(lines)


def _default(value: object) -> str:
    return "unset" if value is None else f"`{value}`"


def _shown(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, Mapping):
        return str({name: part.model_dump(exclude_none=True) for name, part in value.items()})
    return str(value)
