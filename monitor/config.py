"""The one config object, and the only place that reads config files and variables.

Precedence: a variable `EVENHAND_…` over the YAML file over the default. Whatever is not known or
not allowed refuses to start and names the field, the value and what is allowed.
"""

from __future__ import annotations

import difflib
import os
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from monitor.bundle.manifest import Sha256
from monitor.bundle.reader import DEFAULT_MAX_BYTES, DEFAULT_PROBE_ROWS
from monitor.errors import ConfigError
from monitor.yaml_file import read_yaml

__all__ = ["BundleConfig", "ComputeConfig", "Config", "ConfigField", "config_fields", "load_config"]

PREFIX = "EVENHAND_"

# What Kubernetes sets in every pod of a namespace that has a Service called evenhand-something.
_SERVICE_LINK = re.compile(
    r".*_(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=\d+|PORT=\w+://.*"
    r"|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=.*)"
)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _named(path: Path) -> Path:
    if path == Path():
        raise ValueError("an empty path")
    return path


class BundleConfig(_Part):
    """Which bundle is read, and how far it is trusted."""

    path: Annotated[Path, AfterValidator(_named)] | None = Field(
        None, description="The bundle: a directory or a `.tar` file."
    )
    manifest_sha256: Sha256 | None = Field(
        None,
        description="Digest that the manifest must have. Pin it where the bundle's storage is less "
        "trusted than this config.",
    )
    max_bytes: int = Field(
        DEFAULT_MAX_BYTES, ge=1, strict=True, description="Refuse a bundle larger than this."
    )
    probe_rows: int = Field(
        DEFAULT_PROBE_ROWS,
        ge=2,
        le=65536,
        strict=True,
        description="How many made-up people a classifier is tried on before it is used.",
    )


class ComputeConfig(_Part):
    """How the machine is used."""

    threads: int = Field(
        1,
        ge=1,
        le=1024,
        strict=True,
        description="Threads that torch uses for one batch. More than one seldom pays for the "
        "small classifiers that decide on people.",
    )


class Config(_Part):
    """All settings of evenhand, a part for each component."""

    bundle: BundleConfig = BundleConfig()
    compute: ComputeConfig = ComputeConfig()


class ConfigField(NamedTuple):
    """One setting: where it stands in the file, its variable, and what it may be."""

    part: str
    name: str
    info: FieldInfo

    @property
    def path(self) -> str:
        """Its place in the YAML file, such as `bundle.path`."""
        return f"{self.part}.{self.name}"

    @property
    def variable(self) -> str:
        """Its environment variable, such as `EVENHAND_BUNDLE_PATH`."""
        return f"{PREFIX}{self.part}_{self.name}".upper()

    @property
    def allowed(self) -> str:
        """What it may be, in words."""
        return _allowed(self.info)


def config_fields() -> Iterator[ConfigField]:
    """Every setting there is, in the order of the file."""
    for part, part_info in Config.model_fields.items():
        model = part_info.annotation
        assert isinstance(model, type)
        assert issubclass(model, _Part)
        for name, info in model.model_fields.items():
            yield ConfigField(part, name, info)


def load_config(path: Path | str | None, environ: Mapping[str, str] | None = None) -> Config:
    """Build the config from a YAML file, if one is given, and environment variables.

    Args:
        path: The YAML file.
        environ: The variables; None for those of this process.

    Raises:
        ConfigError: A file that cannot be read, or fields and variables that are unknown or bad;
            the message lists every one of them.
    """
    content = {} if path is None else read_yaml(Path(path), ConfigError)
    # A part whose fields are all commented out reads as null.
    settings = {key: {} if value is None else value for key, value in content.items()}
    problems: list[str] = []
    for field, text in _variables(os.environ if environ is None else environ, problems):
        try:
            value = _adapter(field.info).validate_strings(text)
        except ValidationError:
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


def _adapter(info: FieldInfo) -> TypeAdapter[Any]:
    annotation: Any = info.annotation
    if info.metadata:
        annotation = Annotated[annotation, *info.metadata]
    return TypeAdapter(annotation)


def _explain(detail: Any) -> str:
    """One problem of pydantic's in the words of the config."""
    place = [str(part) for part in detail["loc"]]
    known = {field.path: field for field in config_fields()}
    if detail["type"] == "extra_forbidden":
        inside = place[:-1]
        names = [f.name for f in known.values() if [f.part] == inside] or list(Config.model_fields)
        return f"{'.'.join(place)}: no such field{_guess(place[-1], names)}"
    field = known.get(".".join(place[:2]))
    if field is None:
        return f"{'.'.join(place)}: must hold fields, not {_kind(detail['input'])}"
    return f"{field.path}: {_not_allowed(detail['input'], field)}"


def _not_allowed(value: object, field: ConfigField) -> str:
    return f"{repr(value)[:80]} is not allowed; it must be {field.allowed}"


def _guess(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known here: {', '.join(known)}"


def _link_hint(text: str) -> str:
    if re.match(r"(tcp|udp|sctp)://", text):
        return " (set by Kubernetes for a Service; use enableServiceLinks: false in the pod)"
    return ""


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    return "text" if isinstance(value, str) else type(value).__name__


def _allowed(info: FieldInfo) -> str:
    annotation, bounds = info.annotation, _bounds(info.metadata)
    options = [annotation]
    if get_origin(annotation) in (Union, types.UnionType):
        options = list(get_args(annotation))
    words = [_type_in_words(option, bounds) for option in options if option is not type(None)]
    return " or ".join(words) + (", or nothing" if type(None) in options else "")


def _bounds(metadata: list[Any]) -> tuple[Any, Any]:
    low = next((m.ge for m in metadata if hasattr(m, "ge")), None)
    high = next((m.le for m in metadata if hasattr(m, "le")), None)
    return low, high


def _type_in_words(option: Any, bounds: tuple[Any, Any]) -> str:
    if option is Sha256:
        return "a SHA-256 digest, 64 characters 0-9 a-f"
    if option is Path or get_args(option)[:1] == (Path,):
        return "a path"
    if get_origin(option) is Literal:
        return "one of " + ", ".join(map(str, get_args(option)))
    if option is int:
        low, high = bounds
        if high is None:
            return "a whole number" + ("" if low is None else f" of at least {low}")
        return f"a whole number from {low} to {high}"
    return str(getattr(option, "__name__", option))
