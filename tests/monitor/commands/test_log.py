"""`evenhand log` takes locations from options or the config, and reports errors."""

from __future__ import annotations

import json

import pytest

from monitor.errors import TrafficError
from monitor.traffic.store import Store
from tests.commands import evenhand


def test_inspect_summarises_a_log(logged):
    options = ("log", "inspect", "--log", logged.log, "--outcomes", logged.outcomes)
    words = " ".join(evenhand(*options).stdout.split())
    assert "lending" in words
    assert "120" in words
    summary = evenhand(*options, "--json")
    assert summary.exit_code == 0
    assert json.loads(summary.stdout)


def test_inspect_reads_the_config(logged, tmp_path):
    config = tmp_path / "config.yaml"
    locations = {"traffic": {"path": str(logged.log)}, "outcomes": {"path": str(logged.outcomes)}}
    config.write_text(json.dumps(locations))
    assert "lending" in evenhand("log", "inspect", "--config", config).stdout


def test_inspect_requires_an_existing_log(tmp_path):
    assert evenhand("log", "inspect").exit_code == 2
    absent = evenhand("log", "inspect", "--log", tmp_path / "nowhere")
    assert absent.exit_code == 2
    assert "nowhere" in absent.stderr


@pytest.mark.parametrize(
    "address", ["s3://AKIA:hidden@bucket/prefix", "s3://bucket/prefix?secret_key=hidden"]
)
def test_credentials_in_an_address_are_rejected(tmp_path, address):
    with pytest.raises(TrafficError, match="set them in the environment") as error:
        Store.open(address)
    assert "hidden" not in str(error.value)
    config = tmp_path / "config.yaml"
    config.write_text(f"traffic: {{path: log, store: '{address}'}}")
    result = evenhand("config", "check", config)
    assert result.exit_code == 2
    assert "traffic.store" in result.stderr
    assert "credentials belong in the environment" in result.stderr
    assert "hidden" not in result.stderr + result.stdout


def test_an_unsupported_store_is_rejected():
    with pytest.raises(TrafficError, match="unsupported storage address"):
        Store.open("ftp://somewhere/log")


@pytest.mark.parametrize("model", ["../other", "a/b", ""])
def test_a_model_name_must_not_be_a_path(tmp_path, model):
    (tmp_path / "o.csv").write_text("request_id,label\na,1\n")
    result = evenhand(
        *("log", "import", tmp_path / "o.csv", "--outcomes", tmp_path / "out", "--model", model)
    )
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()
