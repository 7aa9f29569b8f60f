"""The REST transport conforms to its OpenAPI document, tested by schemathesis.

`positive_data_acceptance` is left out: a document cannot say that a tensor must have the model's
features, so many requests that it allows are rejected. The checks of authentication and of
created and deleted resources do not apply here.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from tests.live.sidecar import MODEL, VERSION, Fitted, Sidecar, sidecar

pytestmark = pytest.mark.live

CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_schema_conformance", "response_headers_conformance", "unsupported_method"),
    *("negative_data_rejection", "missing_required_header", "allow_header_conformance"),
)
OUTPUTS = ("score", "decision", "verdict", "p_value", "sensitivity", "contributions")


@pytest.fixture(scope="module")
def serving(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar that records outcomes, so that the document has all operations."""
    folder = tmp_path_factory.mktemp("recording")
    config = {"outcomes": {"path": str(folder / "outcomes")}}
    with sidecar(fitted, folder, config) as running:
        yield running


@pytest.fixture
def run(peer, tmp_path):
    """Runs schemathesis on a document; returns its exit code and output."""

    def call(location, *options: object, known_names: bool) -> tuple[int, str]:
        # Without known names nearly every response is 404.
        names = f'[parameters]\n"path.model" = "{MODEL}"\n"path.version" = "{VERSION}"\n'
        (tmp_path / "schemathesis.toml").write_text(names if known_names else "")
        command = [peer("schemathesis"), "-m", "schemathesis.cli", "run", location, *options]
        command += ["--checks", ",".join(CHECKS), "--seed", "1", "--max-examples", "50"]
        command += ["--generation-database", "none", "--no-color", "--workers", "1"]
        process = subprocess.run(
            command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=180
        )
        return process.returncode, process.stdout + process.stderr

    return call


@pytest.mark.parametrize("known_names", [True, False], ids=["known names", "any names"])
def test_the_rest_transport_conforms_to_its_openapi_document(run, serving, known_names):
    before = len(serving.log)
    code, output = run(f"{serving.url}/openapi.json", known_names=known_names)
    assert code == 0, output[-4000:]
    assert re.search(r"Tested: 12\n", output), output
    assert not [line for line in serving.log[before:].splitlines() if '"ERROR"' in line]


@pytest.mark.parametrize("binary", [False, True], ids=["as JSON", "as bytes"])
def test_responses_to_valid_requests_conform_to_the_openapi_document(
    run, serving, fitted, tmp_path, binary
):
    """The document gets examples, since randomly generated requests get no prediction."""
    document = httpx.get(f"{serving.url}/openapi.json").json()
    tensor = {"name": "features", "datatype": "FP32", "shape": [2, 25]}
    example = {
        "id": "an example",
        "inputs": [{**tensor, "data": fitted.rows[:2].tolist()}],
        "outputs": [{"name": name} for name in OUTPUTS],
    }
    parameters = {"binary_data_output": binary}
    for path in (f"/v2/models/{{model}}{suffix}/infer" for suffix in ("", "/versions/{version}")):
        content = document["paths"][path]["post"]["requestBody"]["content"]
        content["application/json"]["example"] = {**example, "parameters": parameters}
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(document))
    ok_requests = 'evenhand_requests_total{outcome="ok",transport="rest"}'
    before = serving.metric(ok_requests)
    code, output = run(file, "--url", serving.url, "--phases", "examples", known_names=True)
    assert code == 0, output[-4000:]
    assert serving.metric(ok_requests) >= before + 2
