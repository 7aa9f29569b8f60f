"""Part 3 of the demo: read the traffic log, import outcomes, and erase a request."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from monitor.client import Predictions
from monitor.demo.lender import Lender
from monitor.errors import TrafficError
from monitor.traffic.spool import SEGMENTS

__all__ = ["clear_logs", "evidence"]

# Share of people whose sex the bank knows.
_KNOWN_SEX = 0.7
_QUERY = """\
select group_sex as sex, count(*) as rows,
       round(100 * avg(decision), 1) as "granted %",
       round(100 * avg(flip_probability_sex), 1) as "would flip %",
       round(100 * avg(label), 1) as "repaid %"
from '{log}/**/*.parquet'
left join '{outcomes}/**/*.parquet' using (request_id, row)
group by all order by sex"""


def clear_logs(out: Path) -> None:
    """Delete the logs of an earlier demo.

    Raises:
        TrafficError: A directory exists that is not a log.
    """
    for folder in (out / "log", out / "outcomes"):
        if folder.exists() and not (folder / SEGMENTS).is_dir():
            raise TrafficError(
                f"{folder} exists and is not a log of the demo; choose another --out"
            )
    for folder in (out / "log", out / "outcomes"):
        shutil.rmtree(folder, ignore_errors=True)


def evidence(
    console: Console, lender: Lender, responses: Sequence[Predictions], seed: int, out: Path
) -> None:
    """Run part 3: import outcomes, query the log of part 2, and erase a request."""
    console.print()
    console.rule("Part 3: the traffic log")
    log, outcomes = out / "log", out / "outcomes"
    console.print(
        f"\nThe sidecar logged every decision to {log} before it sent the response: features by "
        "name, score, signals, p-values, verdict, action. Later the bank knows which loans were "
        f"repaid, and the sex of {_KNOWN_SEX:.0%} of the people. These outcomes come from another "
        "system, and are stored apart from the traffic.\n"
    )
    file = _write_outcomes(lender, responses, seed, out)
    _run(
        console,
        *("log", "import", str(file), "--outcomes", str(outcomes), "--bundle", str(lender.path)),
    )
    console.print("\nAn analyst joins both with DuckDB:\n")
    _query(console, log, outcomes)
    console.print(
        "\nThe last row contains people of unknown sex. Repayment is unknown for refused loans, so "
        "an audit of repayment covers granted loans only. The summary of the log says so:\n"
    )
    _run(console, "log", "inspect", "--log", str(log), "--outcomes", str(outcomes))
    console.print("\nOne person requests erasure.\n")
    _run(
        console,
        *("log", "erase", "--log", str(log), "--outcomes", str(outcomes)),
        *("--receipt", str(out / "receipt.json"), "--request-id", responses[0].request_id),
    )


def _write_outcomes(lender: Lender, responses: Sequence[Predictions], seed: int, out: Path) -> Path:
    """Write labels of granted loans, and groups of people whose sex is known."""
    generator = np.random.default_rng(seed)
    count = len(responses)
    granted = np.array(
        [r.decisions[0] == lender.bundle.manifest.decision.class_names[1] for r in responses]
    )
    sex = next(a for a in lender.bundle.manifest.protected_attributes if a.name == "sex")
    codes = lender.test.groups["sex"][:count]
    known_sex = generator.random(count) < _KNOWN_SEX
    table = pa.table(
        {
            "request_id": [response.request_id for response in responses],
            "label": pa.array(lender.test.repaid[:count].astype(np.int8), mask=~granted),
            "group_sex": pa.array([sex.groups[code] for code in codes], mask=~known_sex),
        }
    )
    known = granted | known_sex
    path = out / "outcomes.parquet"
    pq.write_table(table.filter(pa.array(known)), path)
    return path


def _query(console: Console, log: Path, outcomes: Path) -> None:
    import duckdb

    query = _QUERY.format(log=log, outcomes=outcomes)
    console.print(Syntax(query, "sql", background_color="default", word_wrap=True))
    with duckdb.connect() as connection:
        relation = connection.sql(query)
        names, rows = relation.columns, relation.fetchall()
    table = Table(*names)
    for row in rows:
        table.add_row(*("—" if value is None else f"{value}" for value in row))
    console.print(table)
    if not rows:
        raise TrafficError(f"{log}: the log is empty")


def _run(console: Console, *arguments: str) -> None:
    """Run an `evenhand` command, and print it with its output."""
    console.print(f"$ evenhand {' '.join(arguments)}", soft_wrap=True)
    command = [sys.executable, "-m", "monitor", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode != 0:
        raise TrafficError(done.stderr.strip())
    console.print(done.stdout.rstrip(), soft_wrap=True)
