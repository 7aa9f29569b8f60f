"""Building blocks of the config: the frozen base model, and types of fields."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = ["Days", "NamedPath", "Port", "Settings", "StoreAddress", "holds_credentials"]

# Query parameters of an object storage address that hold a secret.
_SECRETS = ("access_key", "secret_key", "session_token")


class Settings(BaseModel):
    """A frozen set of fields; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def holds_credentials(address: str) -> bool:
    """Whether an address such as `s3://…` contains a user name or a key."""
    parts = urlsplit(address)
    return "@" in parts.netloc or any(name in _SECRETS for name, _ in parse_qsl(parts.query))


def _without_credentials(address: str) -> str:
    if holds_credentials(address):
        raise ValueError("credentials belong in the environment, not in an address")
    return address


def _not_empty(path: Path) -> Path:
    if path == Path():
        raise ValueError("the path is empty")
    return path


NamedPath = Annotated[Path, AfterValidator(_not_empty)]
StoreAddress = Annotated[str, Field(min_length=1), AfterValidator(_without_credentials)]
Port = Annotated[int, Field(ge=0, le=65535, strict=True)]
Days = Annotated[int, Field(ge=1, strict=True)]
