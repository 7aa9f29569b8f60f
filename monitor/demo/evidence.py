"""The demo's third chapter: what was answered is evidence, outcomes join it, someone leaves."""

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

# Of those with a decision, how many told the bank their sex; who was refused never repays.
_TOLD = 0.7
_QUERY = """\
select group_sex as sex, count(*) as people,
       round(100 * avg(decision), 1) as "granted %",
       round(100 * avg(flip_probability_sex), 1) as "would flip %",
       round(100 * avg(label), 1) as "repaid %"
from '{log}/**/*.parquet'
left join '{outcomes}/**/*.parquet' using (request_id, row)
group by all order by sex"""


def clear_logs(out: Path) -> None:
    """Away with an earlier demo's traffic.

    Raises:
        TrafficError: Something else stands in its place.
    """
    for folder in (out / "log", out / "outcomes"):
        if folder.exists() and not (folder / SEGMENTS).is_dir():
            raise TrafficError(f"{folder} is no log of a demo; name another --out")
    for folder in (out / "log", out / "outcomes"):
        shutil.rmtree(folder, ignore_errors=True)


def evidence(
    console: Console, found: Lender, answers: Sequence[Predictions], seed: int, out: Path
) -> None:
    """Show the log of the second chapter, bring outcomes to it, and erase somebody."""
    console.print()
    console.rule("Chapter 3: evidence")
    log, outcomes = out / "log", out / "outcomes"
    console.print(
        f"\nEvery decision of the first day was written to {log} before its answer left: features "
        "by name, score, signals, p-values, verdict, action. Months later (here, seconds) the bank "
        f"knows who of those it lent to has repaid, and {_TOLD:.0%} of people have told "
        "their sex. That comes from another system, and is kept apart from the traffic.\n"
    )
    file = _write_outcomes(found, answers, seed, out)
    _run(
        console,
        *("log", "import", str(file), "--outcomes", str(outcomes), "--bundle", str(found.path)),
    )
    console.print("\nAn analyst opens both with DuckDB, and joins them:\n")
    _query(console, log, outcomes)
    console.print(
        "\nThe last row is of people who told nothing. Of those who were refused nobody knows "
        "whether they would have repaid, so no audit of repayment can speak for all. The log "
        "says so:\n"
    )
    _run(console, "log", "inspect", "--log", str(log), "--outcomes", str(outcomes))
    console.print("\nOne of them asks to be forgotten.\n")
    _run(
        console,
        *("log", "erase", "--log", str(log), "--outcomes", str(outcomes)),
        *("--receipt", str(out / "receipt.json"), "--request-id", answers[0].request_id),
    )


def _write_outcomes(found: Lender, answers: Sequence[Predictions], seed: int, out: Path) -> Path:
    """What a bank would export: labels of those it lent to, and groups of those who told."""
    generator = np.random.default_rng(seed)
    count = len(answers)
    granted = np.array(
        [a.decisions[0] == found.bundle.manifest.decision.class_names[1] for a in answers]
    )
    sex = next(a for a in found.bundle.manifest.protected_attributes if a.name == "sex")
    codes = found.test.groups["sex"][:count]
    told = generator.random(count) < _TOLD
    table = pa.table(
        {
            "request_id": [answer.request_id for answer in answers],
            "label": pa.array(found.test.repaid[:count].astype(np.int8), mask=~granted),
            "group_sex": pa.array([sex.groups[code] for code in codes], mask=~told),
        }
    )
    known = granted | told
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
        raise AssertionError("the log is empty")


def _run(console: Console, *arguments: str) -> None:
    """Run `evenhand` as a person would, and show what it says."""
    console.print(f"$ evenhand {' '.join(arguments)}", soft_wrap=True)
    command = [sys.executable, "-m", "monitor", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode != 0:
        raise TrafficError(done.stderr.strip())
    console.print(done.stdout.rstrip(), soft_wrap=True)
