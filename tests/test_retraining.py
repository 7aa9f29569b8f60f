"""The page on bundles: a retrained classifier goes live in three commands, and raises an alarm."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from monitor import Bundle, Client, FitData, fit, train_fair
from monitor.traffic.columns import TrafficColumns
from tests.serving import PEOPLE, SPEC, WORLD
from tests.traffic_logs import traffic_rows, write_traffic

ROOT = Path(__file__).parents[1]
STARTED = re.compile(r"127\.0\.0\.1:(\d+) .*http://127\.0\.0\.1:(\d+) ", re.DOTALL)
TRAINING = """
from monitor import World, train_proxy_biased

model, width = train_proxy_biased(World().people(5_000, seed=1), seed=0), 25
"""


def section() -> str:
    page = (ROOT / "docs/bundle.md").read_text()
    return page.partition("goes live in three commands")[2].partition("\n## ")[0]


def write_files(folder: Path) -> None:
    """The files of a lender: a bundle of a fair classifier, its log, and a script that retrains."""
    data = FitData(features=PEOPLE.features, groups=PEOPLE.groups)
    fair = train_fair(WORLD.people(5_000, seed=1), seed=0)
    bundle = fit(fair, data, SPEC, folder / "bundle", compiled=False).bundle
    columns = TrafficColumns.of(bundle.manifest)
    rows = WORLD.people(1_000, seed=2).features
    table = traffic_rows(len(rows), columns=columns)
    for column in columns.features:
        index = table.column_names.index(column.name)
        table = table.set_column(index, table.field(index), [rows[:, column.index]])
    write_traffic(folder / "log", table, columns=columns, model="lending", version="1")
    (export,) = re.findall(r"```python\n(.*?)```", section(), re.DOTALL)
    (folder / "retrain.py").write_text(TRAINING + export)


def test_three_commands_deploy_a_biased_classifier_and_an_alarm_is_raised(tmp_path):
    write_files(tmp_path)
    (commands,) = re.findall(r"```sh\n(.*?)```", section(), re.DOTALL)
    assert len(commands.splitlines()) == 3
    script = commands.replace("--out bundle-2", "--out bundle-2 --no-compile")
    script = script.replace("python retrain.py", f"{sys.executable} retrain.py")
    script = script.replace("evenhand serve", f"exec {sys.executable} -m monitor serve")
    script = script.replace("evenhand bundle", f"{sys.executable} -m monitor bundle")
    environment = {
        "EVENHAND_SERVER_GRPC_PORT": "0",
        "EVENHAND_SERVER_REST_PORT": "0",
        "PYTHONPATH": str(ROOT),
    }
    out, err = tmp_path / "stdout", tmp_path / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            ["sh", "-ec", script],
            cwd=tmp_path,
            env=os.environ | environment,
            stdout=stdout,
            stderr=stderr,
        )
    try:
        end = time.monotonic() + 180
        while (match := STARTED.search(err.read_text())) is None:
            assert process.poll() is None, err.read_text()
            assert time.monotonic() < end, "the sidecar did not start"
            time.sleep(0.1)
        with Client(f"127.0.0.1:{match[1]}", model="lending") as client:
            for rows in WORLD.people(1_500, seed=3).features.reshape(30, 50, -1):
                client.predict(rows)
        alarms = httpx.get(f"http://127.0.0.1:{match[2]}/v1/alarms").json()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
    printed = out.read_text()
    version = Bundle.read(tmp_path / "bundle-2").manifest.model.version
    assert f"version 1 is replaced by version {version}" in printed
    assert "Less fair: more decisions depend on sex than before" in printed
    assert ("share", "sex") in {(alarm["detector"], alarm["attribute"]) for alarm in alarms}
