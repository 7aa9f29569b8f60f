"""`evenhand serve` refuses what cannot be, with one message, exit code 2 and no traceback."""

from __future__ import annotations

import pytest

from tests.commands import evenhand


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "Name a bundle: --bundle, or a config whose bundle.path does."),
        (["--bundle", "nowhere"], "error: nowhere: "),
        (["--bundle", "nowhere", "--pin", "x"], "--pin takes a SHA-256 digest"),
        (["--bundle", "nowhere", "--grpc-port", "70000"], "70000"),
        (["--bundle", "nowhere", "--host", ""], "error: server.host: '' is not allowed"),
        (["--config", "nowhere.yaml"], "error: nowhere.yaml: cannot be read"),
    ],
)
def test_bad_options_are_refused(options, told):
    done = evenhand("serve", *options)
    assert done.exit_code == 2
    assert told in done.output
    assert "Traceback" not in done.output


def test_a_bundle_that_was_not_fitted_is_refused(bundle_path):
    done = evenhand("serve", "--bundle", str(bundle_path))
    assert done.exit_code == 2
    assert "which scoring needs" in done.output
    assert "Traceback" not in done.output


def test_help_says_what_it_does():
    done = evenhand("serve", "--help")
    assert done.exit_code == 0
    assert "judge every prediction" in done.output
