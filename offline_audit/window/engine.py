"""What computes: DuckDB inside this process, or a Spark session, behind the same expressions."""

from __future__ import annotations

import itertools
import tempfile
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

import ibis
import pyarrow as pa
from pyarrow import dataset

from monitor.traffic.store import Store
from offline_audit.errors import EngineError

__all__ = ["Engine"]

_GLOB = set("*?[]{}\\")
# Microseconds have 51 bits for a while, so that both times and a small number fit.
_ORDER = """
CREATE MACRO evenhand_order(observed_at, received_at, value) AS
epoch_us(observed_at)::HUGEINT * 100000000000000000000 + epoch_us(received_at) * 1000 + value
"""
# A word is looked for among the others in turn.
_MOST_WORDS = 64


@ibis.udf.scalar.builtin(name="evenhand_order", signature=((None, None, None), "decimal(38, 0)"))
def _evenhand_order(observed_at, received_at, value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The macro above, as Ibis calls it."""


class Engine(ABC):
    """Runs Ibis expressions over files of a store.

    A window that was given an engine leaves it open; close it yourself, or use it in a `with`.

    Attributes:
        asks_for_words: Whether `order` has a use for the words that occur.
    """

    asks_for_words = False

    @staticmethod
    def duckdb(memory: str = "3GB", threads: int | None = None) -> Engine:
        """DuckDB in this process.

        Args:
            memory: What it may use before it spills to a temporary folder.
            threads: None for as many as there are cores.
        """
        return _DuckDB(memory, threads)

    @staticmethod
    def spark(session: Any) -> Engine:
        """A Spark session, whose executors must reach the log's files by the same paths.

        Ibis sets the session's time zone to UTC. Addresses `s3://…` are read as `s3a://…`, with the
        credentials that the session is configured with.
        """
        return _Spark(session)

    @abstractmethod
    def files(self, store: Store, paths: Sequence[str], schema: pa.Schema) -> Any:
        """Parquet files of one schema as an Ibis table; no file has columns from its path."""

    @abstractmethod
    def empty(self, schema: pa.Schema) -> Any:
        """An Ibis table of no rows."""

    def order(
        self, observed_at: Any, received_at: Any, value: Any, words: Sequence[str] | None
    ) -> Any:
        """What is greater for a later word: by one time, then the other, then the value.

        Args:
            observed_at: An Ibis column.
            received_at: Another.
            value: A column of small numbers or of words; the order is null or irrelevant without.
            words: All that occur, in their order; None for numbers, and if nobody asks for them.
        """
        parts = {"observed_at": observed_at, "received_at": received_at, "value": value}
        return ibis.struct(parts)

    def fetch(self, expression: Any) -> pa.Table:
        """All rows of an expression; make it small first.

        Raises:
            EngineError: The engine failed.
        """
        return _alike(self._fetch(expression))

    def stream(self, expression: Any, size: int) -> Iterator[pa.RecordBatch]:
        """Rows of an expression, some at a time.

        Raises:
            EngineError: The engine failed.
        """
        for batch in self._stream(expression, size):
            yield from _alike(pa.Table.from_batches([batch])).to_batches()

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _fetch(self, expression: Any) -> pa.Table: ...

    @abstractmethod
    def _stream(self, expression: Any, size: int) -> Iterator[pa.RecordBatch]: ...


class _DuckDB(Engine):
    asks_for_words = True

    def __init__(self, memory: str, threads: int | None) -> None:
        self._spill = tempfile.TemporaryDirectory(prefix="evenhand-duckdb-")
        options: dict[str, Any] = {} if threads is None else {"threads": threads}
        self._ibis = ibis.duckdb.connect(
            memory_limit=memory,
            temp_directory=self._spill.name,
            # Nothing is fetched from the network at a user's site.
            autoinstall_known_extensions=False,
            preserve_insertion_order=False,
            TimeZone="UTC",
            **options,
        )
        self._datasets: dict[str, dataset.Dataset] = {}
        self._ibis.con.execute(_ORDER)

    def order(
        self, observed_at: Any, received_at: Any, value: Any, words: Sequence[str] | None
    ) -> Any:
        """One number of 128 bits: a third of the time and half the memory of a struct."""
        if words is not None and len(words) > _MOST_WORDS:
            return super().order(observed_at, received_at, value, words)
        if words is not None:
            places = ((word, place) for place, word in enumerate(words))
            value = value.cases(*places) if words else ibis.null("int64")
        return _evenhand_order(observed_at, received_at, value)

    def files(self, store: Store, paths: Sequence[str], schema: pa.Schema) -> Any:
        full = [store.path(path) for path in paths]
        if not store.is_local or any(_GLOB & set(path) for path in full):
            return self._dataset(dataset.dataset(full, schema, "parquet", store.filesystem))
        name, listed = _view_name(), ", ".join(_quoted(path) for path in full)
        with _failing("DuckDB", *_duckdb_errors()):
            self._ibis.con.execute(
                f"CREATE VIEW {name} AS SELECT * FROM "  # noqa: S608 - paths are quoted
                f"read_parquet([{listed}], hive_partitioning = false)"
            )
            return self._table(name)

    def empty(self, schema: pa.Schema) -> Any:
        return self._dataset(dataset.dataset(schema.empty_table()))

    def close(self) -> None:
        self._ibis.disconnect()
        self._spill.cleanup()

    def _dataset(self, found: dataset.Dataset) -> Any:
        name = _view_name()
        self._datasets[name] = found
        self._ibis.con.register(name, found)
        return self._table(name)

    def _table(self, name: str) -> Any:
        with warnings.catch_warnings():
            # Ibis 12 asks DuckDB 2 for the schema in a way that is going away.
            warnings.filterwarnings("ignore", "fetch_arrow_table", DeprecationWarning)
            return self._ibis.table(name)

    def _fetch(self, expression: Any) -> pa.Table:
        with _failing("DuckDB", *_duckdb_errors()):
            return self._ibis.con.sql(self._ibis.compile(expression)).to_arrow_table()

    def _stream(self, expression: Any, size: int) -> Iterator[pa.RecordBatch]:
        # A connection of its own, since the next query would end this one's rows.
        with self._ibis.con.cursor() as cursor:
            for name, found in self._datasets.items():
                cursor.register(name, found)
            with _failing("DuckDB", *_duckdb_errors()):
                yield from cursor.sql(self._ibis.compile(expression)).to_arrow_reader(size)


class _Spark(Engine):
    def __init__(self, session: Any) -> None:
        self._session = session
        self._ibis = ibis.pyspark.connect(session)
        self._views: list[str] = []

    def files(self, store: Store, paths: Sequence[str], schema: pa.Schema) -> Any:
        scheme = "file://" if store.is_local else "s3a://"
        full = [scheme + _unglobbed(store.path(path)) for path in paths]
        with _failing("Spark", *_spark_errors()):
            return self._view(self._session.read.schema(_spark_schema(schema)).parquet(*full))

    def empty(self, schema: pa.Schema) -> Any:
        from pyspark.sql import functions

        # Without Python on the executors, which a list of rows would ask for.
        columns = (
            functions.lit(None).cast(field.dataType).alias(field.name)
            for field in _spark_schema(schema)
        )
        return self._view(self._session.range(0).select(*columns))

    def close(self) -> None:
        """Drop the views; the session is its owner's."""
        for view in self._views:
            self._session.catalog.dropTempView(view)
        self._views.clear()

    def _view(self, frame: Any) -> Any:
        name = _view_name()
        frame.createOrReplaceTempView(name)
        self._views.append(name)
        return self._ibis.table(name)

    def _fetch(self, expression: Any) -> pa.Table:
        with _failing("Spark", *_spark_errors()):
            return self._session.sql(self._ibis.compile(expression)).toArrow()

    def _stream(self, expression: Any, size: int) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        frame = self._session.sql(self._ibis.compile(expression))
        schema = to_arrow_schema(frame.schema)
        with _failing("Spark", *_spark_errors()):
            # A partition at a time, so that the driver never holds them all.
            rows = frame.toLocalIterator(prefetchPartitions=True)
            while some := [row.asDict() for row in itertools.islice(rows, size)]:
                yield pa.RecordBatch.from_pylist(some, schema=schema)


class _failing:  # noqa: N801 - reads as a sentence after `with`
    """Turns an engine's errors into ours."""

    def __init__(self, engine: str, *kinds: type[Exception]) -> None:
        self._engine, self._kinds = engine, kinds

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, self._kinds):
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
            raise EngineError(f"{self._engine} failed: {first}") from error


def _duckdb_errors() -> tuple[type[Exception], ...]:
    import duckdb

    return (duckdb.Error, pa.ArrowException, OSError)


def _spark_errors() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError)


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _alike(table: pa.Table) -> pa.Table:
    """With the same types whichever engine it comes from."""
    fields = [pa.field(field.name, _type_alike(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


def _type_alike(found: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(found):
        return _type_alike(found.value_type)
    if pa.types.is_timestamp(found):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_large_string(found) or pa.types.is_string_view(found):
        return pa.string()
    # DuckDB sums integers in 128 bits.
    return pa.int64() if pa.types.is_decimal(found) and found.scale == 0 else found


def _view_name() -> str:
    return f"evenhand_{uuid.uuid4().hex}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _unglobbed(path: str) -> str:
    """With a backslash before what Hadoop would take for a pattern."""
    return "".join(f"\\{c}" if c in _GLOB else c for c in path)
