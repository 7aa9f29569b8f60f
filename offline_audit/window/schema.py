"""Files of several schemas as one table: columns that a file lacks are null there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ibis
import pyarrow as pa

from monitor.traffic.store import Store
from offline_audit.window.engine import Engine
from offline_audit.window.files import ReadFile

__all__ = ["SchemaVariant", "Unified", "unify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVariant:
    """Files whose columns are not those of the whole window.

    Attributes:
        paths: Of the files.
        lacks: Columns that are null in their rows.
        differs: Columns of another type, each with that type and the one it is read as; a value
            that the newer type cannot hold is null.
    """

    paths: tuple[str, ...]
    lacks: tuple[str, ...]
    differs: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unified:
    """The columns of all files together.

    Attributes:
        schema: Each with the name and the type that the newest file with it gives it.
        sources: For each distinct schema and version: the files, and which of their columns stands
            where; None where they have none.
        variants: Those that differ from the whole.
    """

    schema: pa.Schema
    sources: tuple[tuple[tuple[ReadFile, ...], tuple[str | None, ...]], ...]
    variants: tuple[SchemaVariant, ...]

    def table(self, engine: Engine, store: Store) -> Any:
        """One Ibis table over all files, with the version that their paths say as a column."""
        if not self.sources:
            return engine.empty(self.schema.append(pa.field("version", pa.string())))
        return ibis.union(*(self._part(engine, store, *source) for source in self.sources))

    def _part(
        self,
        engine: Engine,
        store: Store,
        files: tuple[ReadFile, ...],
        names: tuple[str | None, ...],
    ) -> Any:
        raw = engine.files(store, [file.path for file in files], files[0].schema)
        columns = {}
        for wanted, name in zip(self.schema, names, strict=True):
            if name is None:
                columns[wanted.name] = ibis.null(ibis.dtype(wanted.type))
            elif files[0].schema.field(name).type == wanted.type:
                columns[wanted.name] = raw[name]
            else:
                columns[wanted.name] = raw[name].try_cast(ibis.dtype(wanted.type))
        return raw.select(**columns, version=ibis.literal(files[0].partition.version))


def unify(
    files: Sequence[ReadFile], least: pa.Schema, reserved: frozenset[str] = frozenset()
) -> Unified:
    """Bring files under one schema.

    Args:
        files: The oldest first.
        least: Columns that the result has whatever the files have.
        reserved: Names, in lower case, that a column of a file must not have: `feature_` is put
            before it.
    """
    # Engines do not tell names apart by case.
    fields: dict[str, pa.Field] = {}
    for file in reversed(files):
        for column in file.schema:
            name = _free(column.name, reserved)
            fields.setdefault(name.casefold(), column.with_name(name))
    for column in least:
        fields.setdefault(column.name.casefold(), column)
    schema = pa.schema([field.remove_metadata() for field in fields.values()])
    alike: dict[tuple[str, pa.Schema], list[ReadFile]] = {}
    for file in files:
        alike.setdefault((file.partition.version, file.schema), []).append(file)
    sources, variants = [], []
    for (_, found), group in alike.items():
        named = {_free(name, reserved).casefold(): name for name in found.names}
        names = tuple(named.get(field.name.casefold()) for field in schema)
        sources.append((tuple(group), names))
        variants.append(_variant(group, found, schema, names))
    return Unified(
        schema=schema,
        sources=tuple(sources),
        variants=tuple(v for v in variants if v.lacks or v.differs),
    )


def _variant(
    files: list[ReadFile], found: pa.Schema, schema: pa.Schema, names: tuple[str | None, ...]
) -> SchemaVariant:
    both = list(zip(schema, names, strict=True))
    return SchemaVariant(
        paths=tuple(file.path for file in files),
        lacks=tuple(wanted.name for wanted, name in both if name is None),
        differs=tuple(
            (wanted.name, str(found.field(name).type), str(wanted.type))
            for wanted, name in both
            if name is not None and found.field(name).type != wanted.type
        ),
    )


def _free(name: str, reserved: frozenset[str]) -> str:
    return f"feature_{name}" if name.casefold() in reserved else name
