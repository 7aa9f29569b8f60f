"""The config reference, made from the config itself: `python -m monitor.config_reference`."""

from __future__ import annotations

from monitor.config import config_fields
from monitor.settings import Config

__all__ = ["config_reference"]

_HEAD = """\
# Config reference

Made from `monitor/settings.py` by `python -m monitor.config_reference > docs/reference/config.md`;
a test keeps it current.

One YAML file holds every setting. A variable overrides the file, the file overrides the default,
and an empty variable counts as not set. A field or an `EVENHAND_…` variable that does not exist,
or a value that is not allowed, refuses to start whatever reads the config, and names the field,
the value and what is allowed. `evenhand config check [FILE]` tells without starting anything.
Plain words are read as YAML 1.2 reads them.
"""


def config_reference() -> str:
    """The reference page, in Markdown."""
    lines = [_HEAD]
    for part, info in Config.model_fields.items():
        lines += [f"## {part}", "", f"{info.annotation.__doc__}", ""]
        lines += ["| field | variable | allowed | default | what it does |"]
        lines += ["| --- | --- | --- | --- | --- |"]
        lines += [
            f"| `{field.path}` | `{field.variable}` | {field.allowed} "
            f"| {_shown(field.info.default)} | {field.info.description} |"
            for field in config_fields()
            if field.part == part
        ]
        lines += [""]
    return "\n".join(lines)


def _shown(default: object) -> str:
    return "nothing" if default is None else f"`{default}`"


if __name__ == "__main__":
    print(config_reference(), end="")  # noqa: T201 - its output is the page
