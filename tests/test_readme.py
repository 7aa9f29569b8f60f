"""The README's examples run as written, in order, against a real sidecar."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from monitor import Client, World, export_classifier, train_proxy_biased
from monitor.fitting.suggest import suggest_spec

README = Path(__file__).parents[1] / "README.md"
WORLD = World()
STARTED = re.compile(r"127\.0\.0\.1:(\d+) .*http://127\.0\.0\.1:(\d+) ", re.DOTALL)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def block(words: str) -> str:
    """The one Python block that contains these words."""
    (text,) = [text for text in blocks("python") if words in text]
    return text


def run(text: str, names: dict[str, object]) -> None:
    exec(compile(text, "README.md", "exec"), names)  # noqa: S102 - our own examples


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the user's files: model.pt2, train.parquet and features.yaml."""
    path = tmp_path_factory.mktemp("readme")
    classifier = train_proxy_biased(WORLD.people(5_000, seed=1), seed=0)
    (path / "model.pt2").write_bytes(export_classifier(classifier, len(WORLD.features)))
    people = WORLD.people(3_000, seed=2)
    table = {f.name: people.features[:, i] for i, f in enumerate(WORLD.features)}
    for attribute in WORLD.attributes:
        table[attribute.name] = np.array(attribute.groups)[people.groups[attribute.name]]
    parquet.write_table(pa.table(table), path / "train.parquet")
    (path / "features.yaml").write_text(suggest_spec(path / "train.parquet"))
    return path


@contextmanager
def serving(folder: Path) -> Iterator[tuple[int, int]]:
    """Run the README's shell commands on free ports; yield the ports of gRPC and REST."""
    (text,) = blocks("sh")
    script = text.replace("evenhand serve", f"exec {sys.executable} -m monitor serve")
    ports = {"EVENHAND_SERVER_GRPC_PORT": "0", "EVENHAND_SERVER_REST_PORT": "0"}
    root = {"PYTHONPATH": str(README.parent)}
    digest = hashlib.sha256((folder / "bundle/manifest.json").read_bytes()).hexdigest()
    out, err = folder / "stdout", folder / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            ["sh", "-c", script],
            cwd=folder,
            env=os.environ | ports | root | {"DIGEST": digest},
            stdout=stdout,
            stderr=stderr,
        )
    try:
        end = time.monotonic() + 120
        while (match := STARTED.search(err.read_text())) is None:
            assert process.poll() is None, err.read_text()
            assert time.monotonic() < end, "the sidecar did not start"
            time.sleep(0.1)
        yield int(match[1]), int(match[2])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()


def test_fit_serve_call_and_audit(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("monitor.fitting.run.compiled_pass", lambda *_: ({}, "not in this test"))
    names: dict[str, object] = {}
    run(block("import fit,"), names)
    assert "Share of flips" in capsys.readouterr().out
    people = WORLD.people(600, seed=3)
    with serving(folder) as (grpc_port, rest_port):
        run(block("import Client").replace("127.0.0.1:8081", f"127.0.0.1:{grpc_port}"), names)
        assert re.search("within|above", capsys.readouterr().out)
        with Client(f"127.0.0.1:{grpc_port}", model="my-model") as client:
            client.predict(people.features, request_id="many")
        sexes = np.array(WORLD.attributes[0].groups)[people.groups["sex"]].tolist()
        outcomes = [
            {"request_id": "many", "row": row, "label": row % 2, "groups": {"sex": sex}}
            for row, sex in enumerate(sexes)
        ]
        response = httpx.post(
            f"http://127.0.0.1:{rest_port}/v1/outcomes", json={"outcomes": outcomes}
        )
        assert response.json()["recorded"] == 600
    run(block("import Window, audit_window"), names)
    assert "sex" in capsys.readouterr().out


@pytest.mark.parametrize("audit", ["permutation_test", "projection_test", "flip_test"])
def test_every_audit_example_runs(audit, capsys):
    names: dict[str, object] = {}
    run(block("rng = np.random"), names)
    run(block(f"{audit}\n"), names)
    assert "sex" in capsys.readouterr().out


def test_the_example_of_the_synthetic_world_runs(capsys):
    run(block("import World"), {})
    assert "of decisions would change" in capsys.readouterr().out


def test_the_examples_import_from_both_packages_only():
    """Examples use no internal module."""
    imported = re.findall(r"from ((?:monitor|offline_audit)\S*) import", README.read_text())
    assert set(imported) == {"monitor", "offline_audit"}
