"""`evenhand serve` rejects invalid options with one message and exit code 2."""

from __future__ import annotations

import pytest

from tests.commands import evenhand


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "No bundle given: use --bundle, or a config with bundle.path."),
        (["--bundle", "nowhere"], "error: nowhere: "),
        (["--bundle", "nowhere", "--pin", "x"], "--pin: expected a SHA-256 digest"),
        (["--bundle", "nowhere", "--grpc-port", "70000"], "70000"),
        (["--bundle", "nowhere", "--host", ""], "server.host: '' is not allowed: String should"),
        (["--config", "nowhere.yaml"], "error: nowhere.yaml: cannot be read"),
    ],
)
def test_invalid_options_are_rejected(options, message):
    result = evenhand("serve", *options)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_bundle_that_was_not_fitted_is_rejected(bundle_path):
    result = evenhand("serve", "--bundle", str(bundle_path))
    assert result.exit_code == 2
    assert "which scoring needs" in result.output
    assert "Traceback" not in result.output


def test_help_describes_the_command():
    result = evenhand("serve", "--help")
    assert result.exit_code == 0
    assert "score every prediction" in result.output
