"""Builds the config; the only module that reads config files and environment variables.

Precedence: a variable `EVENHAND_…`, then the YAML file, then the default. An unknown field or an
invalid value is an error that names the field, the value and what is allowed.
"""

from __future__ import annotations

import difflib
import os
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from monitor.bundle.manifest import Sha256
from monitor.errors import ConfigError
from monitor.setting_types import Settings
from monitor.settings import Config
from monitor.yaml_file import parse_yaml, read_yaml

__all__ = ["ConfigField", "config_fields", "load_config"]

PREFIX = "EVENHAND_"

# Variables that Kubernetes sets in each pod of a namespace with a Service named evenhand-….
_SERVICE_LINK = re.compile(
    r".*_(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=\d+|PORT=\w+://.*"
    r"|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=.*)"
)


class ConfigField(NamedTuple):
    """One setting: its part, its name, and its type with constraints."""

    part: str
    name: str
    info: FieldInfo

    @property
    def path(self) -> str:
        """Path in the YAML file, such as `bundle.path`."""
        return f"{self.part}.{self.name}"

    @property
    def variable(self) -> str:
        """Environment variable, such as `EVENHAND_BUNDLE_PATH`."""
        return f"{PREFIX}{self.part}_{self.name}".upper()

    @property
    def allowed(self) -> str:
        """Allowed values, in words."""
        return _allowed_values(self.info)


def config_fields() -> Iterator[ConfigField]:
    """All settings, in the order of the reference page."""
    for part, part_info in Config.model_fields.items():
        model = part_info.annotation
        assert isinstance(model, type)
        assert issubclass(model, Settings)
        for name, info in model.model_fields.items():
            yield ConfigField(part, name, info)


def load_config(path: Path | str | None, environ: Mapping[str, str] | None = None) -> Config:
    """Build the config from a YAML file, if one is given, and environment variables.

    Args:
        path: Path of the YAML file.
        environ: Environment variables; None for those of this process.

    Raises:
        ConfigError: The file cannot be read, or fields or variables are unknown or invalid; the
            message lists all of them.
    """
    content = {} if path is None else read_yaml(Path(path), ConfigError)
    # A part whose fields are all commented out reads as null.
    settings = {key: {} if value is None else value for key, value in content.items()}
    problems: list[str] = []
    for field, text in _variables(os.environ if environ is None else environ, problems):
        try:
            value = _from_text(field.info, text)
        except (ValidationError, yaml.YAMLError):
            problems.append(f"{field.variable}: {_not_allowed(text, field)}{_link_hint(text)}")
            continue
        part = settings.setdefault(field.part, {})
        if isinstance(part, dict):
            part[field.name] = value
    try:
        config = Config.model_validate(settings)
    except ValidationError as error:
        where = "config" if path is None else str(path)
        problems = [f"{where}: {_explain(d)}" for d in error.errors(include_url=False)] + problems
    else:
        if not problems:
            return config
    raise ConfigError("\n".join(problems))


def _variables(
    environ: Mapping[str, str], problems: list[str]
) -> Iterator[tuple[ConfigField, str]]:
    """The settings among the variables; an empty variable counts as not set."""
    known = {field.variable: field for field in config_fields()}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(PREFIX) or text == "":
            continue
        if variable in known:
            yield known[variable], text
        elif not _SERVICE_LINK.fullmatch(f"{variable}={text}"):
            problems.append(f"{variable}: no such setting{_guess(variable, list(known))}")


def _from_text(info: FieldInfo, text: str) -> Any:
    """Value of a variable; a mapping is written in YAML's one-line form."""
    annotation: Any = info.annotation
    if get_origin(annotation) is Mapping:
        return TypeAdapter(annotation).validate_python(parse_yaml(text))
    if info.metadata:
        annotation = Annotated[annotation, *info.metadata]
    return TypeAdapter(annotation).validate_strings(text)


def _explain(detail: Any) -> str:
    """A pydantic error in terms of the config."""
    location = [str(part) for part in detail["loc"]]
    known = {field.path: field for field in config_fields()}
    field = known.get(".".join(location[:2]))
    if detail["type"] == "extra_forbidden":
        return (
            f"{'.'.join(location)}: no such field{_guess(location[-1], _siblings(location, known))}"
        )
    if len(location) <= 1 and detail["type"] == "value_error":
        # A rule between parts has no location.
        return "".join(f"{part}: " for part in location) + str(detail["ctx"]["error"])
    if field is None:
        return f"{'.'.join(location)}: must be a mapping of fields, not {_kind(detail['input'])}"
    if len(location) > 3:
        inner = _inner(field.info)[location[3]]
        return f"{'.'.join(location)}: {_shown(detail['input'])} is not allowed; it must be " + (
            _allowed_values(inner)
        )
    reason = f" ({detail['ctx']['error']})" if detail["type"] == "value_error" else ""
    return f"{field.path}: {_not_allowed(detail['input'], field)}{reason}"


def _siblings(location: list[str], known: Mapping[str, ConfigField]) -> list[str]:
    """Known fields at the level of an unknown one."""
    field = known.get(".".join(location[:2]))
    if field is not None:
        return list(_inner(field.info))
    inside = [f.name for f in known.values() if [f.part] == location[:-1]]
    return inside or list(Config.model_fields)


def _inner(info: FieldInfo) -> dict[str, FieldInfo]:
    """Fields of the values of a mapping field."""
    model: type[Settings] = get_args(info.annotation)[1]
    return model.model_fields


def _not_allowed(value: object, field: ConfigField) -> str:
    return f"{_shown(value)} is not allowed; it must be {field.allowed}"


def _shown(value: object) -> str:
    """An invalid value, without passwords in addresses."""
    shown = re.sub(r"//[^/\s]*@", "//…@", repr(value))
    return re.sub(r"([?&][^=&\s]*=)[^&\s'\"]*", r"\1…", shown)[:80]


def _guess(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known fields: {', '.join(known)}"


def _link_hint(text: str) -> str:
    if re.match(r"(tcp|udp|sctp)://", text):
        return " (set by Kubernetes for a Service; use enableServiceLinks: false in the pod)"
    return ""


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    return "text" if isinstance(value, str) else type(value).__name__


def _allowed_values(info: FieldInfo) -> str:
    annotation = info.annotation
    options = [annotation]
    if get_origin(annotation) in (Union, types.UnionType):
        options = list(get_args(annotation))
    words = [_type_in_words(o, info.metadata) for o in options if o is not type(None)]
    return " or ".join(words) + (", or null" if type(None) in options else "")


def _type_in_words(option: Any, metadata: list[Any]) -> str:
    if option is Sha256:
        return "a SHA-256 digest, 64 characters 0-9 a-f"
    if get_origin(option) is Annotated:
        inner, *more = get_args(option)
        constraints = [m for part in more for m in (getattr(part, "metadata", None) or [part])]
        return _type_in_words(inner, constraints)
    if get_origin(option) is Literal:
        return "one of " + ", ".join(map(str, get_args(option)))
    if get_origin(option) is Mapping:
        return "a mapping of names to fields " + ", ".join(get_args(option)[1].model_fields)
    if option in (int, float):
        return ("a whole number" if option is int else "a number") + _range(metadata)
    words = {Path: "a path", bool: "true or false", str: "text"}
    return words.get(option) or str(getattr(option, "__name__", option))


def _range(metadata: list[Any]) -> str:
    """Text such as ` from 1 to 5`, or ` above 0 and below 1`."""
    bounds = {
        bound: getattr(m, bound)
        for m in metadata
        for bound in ("ge", "gt", "le", "lt")
        if getattr(m, bound, None) is not None
    }
    if "ge" in bounds and "le" in bounds:
        return f" from {bounds['ge']} to {bounds['le']}"
    words = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
    limits = " and ".join(f"{word} {bounds[b]}" for b, word in words.items() if b in bounds)
    return f" {limits}" if limits else ""
