"""The first example of docs/windows.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.compute as pc

from tests.traffic_logs import outcome_rows, traffic_rows, write_outcomes, write_traffic

PAGE = Path(__file__).parents[3] / "docs/windows.md"


def test_the_first_example_runs_even_if_some_rows_have_no_decision(tmp_path, monkeypatch, capsys):
    rows = traffic_rows(300)
    index = rows.schema.get_field_index("decision")
    unknown = pc.if_else(pc.greater(rows["logit"], 1), None, rows["decision"])
    rows = rows.set_column(index, "decision", unknown)
    write_traffic(tmp_path / "log", rows)
    write_outcomes(tmp_path / "outcomes", outcome_rows(rows))
    monkeypatch.chdir(tmp_path)
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    exec(compile(example, PAGE.name, "exec"), {})  # noqa: S102 - our own text
    printed = capsys.readouterr().out
    assert "300 rows" in printed
    assert re.search(r"female \d+\.\d% approved", printed)
