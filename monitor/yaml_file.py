"""YAML 1.2 files, with errors that name the file and the line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

from monitor.errors import EvenhandError

__all__ = ["parse_yaml", "read_yaml"]


class _Loader(yaml.SafeLoader):
    """Loader that resolves scalars as YAML 1.2 does and rejects duplicate keys.

    In YAML 1.1, PyYAML's default, 010 is 8, 1:30 is 90 and yes is true.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list[Any]]] = {}  # type: ignore[misc]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - the parent's signature
        keys = [
            self.construct_object(key, deep=True)
            for key, _ in node.value
            if key.tag != "tag:yaml.org,2002:merge"
        ]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} appears twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9]{0,17})", "-+0123456789"),
    ("float", r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first)
    )


def parse_yaml(text: str) -> Any:
    """Parse a YAML document.

    Raises:
        yaml.YAMLError: The text is not valid YAML.
    """
    return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader


def read_yaml(path: Path, error_class: type[EvenhandError]) -> dict[str, Any]:
    """Fields of a YAML file; none if it is empty.

    Args:
        path: Path of the file.
        error_class: Class of the errors that are raised.

    Raises:
        EvenhandError: The file cannot be read, or is not a mapping of fields.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise error_class(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise error_class(f"{path}: not a text file in UTF-8") from None
    try:
        content = parse_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "malformed"
        raise error_class(f"{path}{line}: not valid YAML: {problem}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        kind = "a list" if isinstance(content, list) else type(content).__name__
        raise error_class(f"{path}: must be a mapping of fields, such as 'model:', not {kind}")
    return content
