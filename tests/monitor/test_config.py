"""Config files and variables: precedence, YAML 1.2, and messages that name what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from monitor.config import config_fields, load_config
from monitor.errors import ConfigError
from monitor.settings import Config


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "evenhand.yaml"


def test_no_file_and_no_variables_give_the_defaults():
    assert load_config(None, {}) == Config()


def test_a_variable_overrides_the_file_and_the_file_the_default(file):
    file.write_text("bundle:\n  path: /a\n  probe_rows: 10\n")
    config = load_config(file, {"EVENHAND_BUNDLE_PROBE_ROWS": "20", "HOME": "/root"})
    assert config.bundle.path == Path("/a")
    assert config.bundle.probe_rows == 20
    assert config.compute.threads == 1


def test_an_empty_file_an_empty_part_and_an_empty_variable_set_nothing(file):
    file.write_text("# nothing yet\n")
    assert load_config(file, {"EVENHAND_BUNDLE_PATH": ""}) == Config()
    file.write_text("bundle:\n  # path: /a\n")
    assert load_config(file, {}) == Config()


def test_scalars_and_merge_keys_are_read_as_in_yaml_1_2(file):
    file.write_text("bundle: &b\n  path: 2020-13-45\n  probe_rows: 30\n  manifest_sha256: null\n")
    config = load_config(file, {})
    assert (config.bundle.path, config.bundle.probe_rows) == (Path("2020-13-45"), 30)
    file.write_text("bundle:\n  <<: {probe_rows: 9, path: a}\n  path: b\n")
    config = load_config(file, {})
    assert (config.bundle.path, config.bundle.probe_rows) == (Path("b"), 9)


def test_a_config_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        load_config(None, {}).bundle.probe_rows = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bundel: {}", "bundel: no such field; did you mean bundle?"),
        ("bundle: {pth: /a}", "bundle.pth: no such field; did you mean path?"),
        ("bundle: {zzz: 1}", "bundle.zzz: no such field; known fields: path, manifest_sha256"),
        ("bundle: 3", "bundle: must be a mapping of fields, not int"),
        ("bundle: [a]", "bundle: must be a mapping of fields, not a list"),
        ("- a", "must be a mapping of fields, such as 'model:', not a list"),
        ("bundle: {probe_rows: 1}", "1 is not allowed; it must be a whole number from 2 to 65536"),
        ("bundle: {probe_rows: '9'}", "bundle.probe_rows: '9' is not allowed"),
        ("bundle: {probe_rows: 9.5}", "bundle.probe_rows: 9.5 is not allowed"),
        ("compute: {threads: true}", "compute.threads: True is not allowed"),
        ("bundle: {manifest_sha256: abc}", "'abc' is not allowed; it must be a SHA-256 digest"),
        ("bundle: {path: a, path: b}", "line 1: not valid YAML: 'path' appears twice"),
        ("bundle: {path: [", "not valid YAML"),
        ("bundle: !!python/object:os.system {}", "not valid YAML"),
        ("bundle: {probe_rows: !!int abc}", "not valid YAML"),
        ("bundle: " + "[" * 3000, "not valid YAML"),
        ("bundle: {probe_rows: 010}", "'010' is not allowed"),
        ("bundle: {probe_rows: 1:30}", "'1:30' is not allowed"),
        ("bundle: {probe_rows: " + "9" * 5000 + "}", "is not allowed"),
        ("compute: {threads: yes}", "compute.threads: 'yes' is not allowed"),
        ("bundle: {path: ''}", "bundle.path: '' is not allowed; it must be a path"),
        (
            "outcomes: {path: /o, subjects: true}",
            ": outcomes.subjects needs traffic.path and traffic.key_path",
        ),
    ],
)
def test_an_error_in_a_file_names_the_field_the_value_and_the_allowed_values(file, text, message):
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(file, {})
    assert message in str(error.value)
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("EVENHAND_BUNDLE_PTH", "/a", "no such setting; did you mean EVENHAND_BUNDLE_PATH?"),
        ("EVENHAND_BUNDLE_PROBE_ROWS", "many", "'many' is not allowed; it must be a whole number"),
        ("EVENHAND_BUNDLE_PROBE_ROWS", "1", "'1' is not allowed; it must be a whole number from 2"),
        ("EVENHAND_BUNDLE_MANIFEST_SHA256", "x", "'x' is not allowed; it must be a SHA-256 digest"),
        ("EVENHAND_COMPUTE_THREADS", "tcp://10.0.0.1:80", "enableServiceLinks: false"),
    ],
)
def test_an_error_in_a_variable_names_it_the_value_and_the_allowed_values(variable, text, message):
    with pytest.raises(ConfigError) as error:
        load_config(None, {variable: text})
    assert str(error.value).startswith(f"{variable}: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    "variable",
    [
        "EVENHAND_SERVICE_HOST",
        "EVENHAND_SERVICE_PORT",
        "EVENHAND_SERVICE_PORT_GRPC",
        "EVENHAND_PORT",
        "EVENHAND_PORT_8081_TCP_ADDR",
        "EVENHAND_LENDING_PORT_8081_TCP",
    ],
)
def test_variables_that_kubernetes_sets_for_a_service_are_ignored(variable):
    value = "8081" if "SERVICE_PORT" in variable else "tcp://10.0.0.1:8081"
    assert load_config(None, {variable: value}) == Config()


def test_a_variable_that_only_ends_like_a_service_link_is_an_error():
    with pytest.raises(ConfigError, match="EVENHAND_GRPC_PORT: no such setting"):
        load_config(None, {"EVENHAND_GRPC_PORT": "8081"})


def test_all_problems_are_reported_at_once(file):
    file.write_text("bundle: {pth: a, probe_rows: 0}\n")
    with pytest.raises(ConfigError) as error:
        load_config(file, {"EVENHAND_NONSENSE": "1"})
    assert len(str(error.value).splitlines()) == 3


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load_config(tmp_path / "none.yaml", {})
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a text file in UTF-8"):
        load_config(tmp_path / "binary.yaml", {})


def test_every_setting_has_a_unique_variable_and_a_description():
    fields = list(config_fields())
    assert len({field.variable for field in fields}) == len(fields)
    assert all(field.info.description for field in fields)
