"""Schema evolution: files of several schemas as one table, with nulls for columns a file lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis
import pyarrow as pa

if TYPE_CHECKING:
    from monitor.traffic.store import Store
    from offline_audit.window.engine import Engine
    from offline_audit.window.files import ReadFile

__all__ = ["MergedSchema", "SchemaVariant", "merge_schemas"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVariant:
    """Files whose columns differ from those of the whole window.

    Attributes:
        paths: Paths of the files.
        lacks: Columns that the files lack; null in their rows.
        differs: Columns of another type: name, type in the files, type as read. A value that the
            newer type cannot represent is read as null.
    """

    paths: tuple[str, ...]
    lacks: tuple[str, ...]
    differs: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSchema:
    """Columns of all files together.

    Attributes:
        schema: All columns, with the name and type that the newest file gives them.
        sources: For each distinct schema and version: the files, and the name of their column for
            each column of `schema`; None where they have none.
        variants: Files whose columns differ from `schema`.
    """

    schema: pa.Schema
    sources: tuple[tuple[tuple[ReadFile, ...], tuple[str | None, ...]], ...]
    variants: tuple[SchemaVariant, ...]

    def table(self, engine: Engine, store: Store) -> Any:
        """One Ibis table over all files, with the model version of their paths as a column."""
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
        for target, name in zip(self.schema, names, strict=True):
            if name is None:
                columns[target.name] = ibis.null(ibis.dtype(target.type))
            elif files[0].schema.field(name).type == target.type:
                columns[target.name] = raw[name]
            else:
                columns[target.name] = raw[name].try_cast(ibis.dtype(target.type))
        return raw.select(**columns, version=ibis.literal(files[0].partition.version))


def merge_schemas(
    files: Sequence[ReadFile], required: pa.Schema, reserved: frozenset[str] = frozenset()
) -> MergedSchema:
    """Merge the schemas of files.

    Args:
        files: Files, the oldest first.
        required: Columns that the result has even if no file has them.
        reserved: Names in lower case that a column of a file must not have; such a column gets the
            prefix `feature_`.
    """
    # Engines compare column names without regard to case.
    fields: dict[str, pa.Field] = {}
    for file in reversed(files):
        for column in file.schema:
            name = _free(column.name, reserved)
            fields.setdefault(name.casefold(), column.with_name(name))
    for column in required:
        fields.setdefault(column.name.casefold(), column)
    schema = pa.schema([field.remove_metadata() for field in fields.values()])
    by_schema: dict[tuple[str, pa.Schema], list[ReadFile]] = {}
    for file in files:
        by_schema.setdefault((file.partition.version, file.schema), []).append(file)
    sources, variants = [], []
    for (_, own), members in by_schema.items():
        named = {_free(name, reserved).casefold(): name for name in own.names}
        names = tuple(named.get(field.name.casefold()) for field in schema)
        sources.append((tuple(members), names))
        variants.append(_variant(members, own, schema, names))
    return MergedSchema(
        schema=schema,
        sources=tuple(sources),
        variants=tuple(v for v in variants if v.lacks or v.differs),
    )


def _variant(
    files: list[ReadFile], own: pa.Schema, schema: pa.Schema, names: tuple[str | None, ...]
) -> SchemaVariant:
    columns = list(zip(schema, names, strict=True))
    return SchemaVariant(
        paths=tuple(file.path for file in files),
        lacks=tuple(target.name for target, name in columns if name is None),
        differs=tuple(
            (target.name, str(own.field(name).type), str(target.type))
            for target, name in columns
            if name is not None and own.field(name).type != target.type
        ),
    )


def _free(name: str, reserved: frozenset[str]) -> str:
    return f"feature_{name}" if name.casefold() in reserved else name
