"""The command line starts fast and lists its commands."""

import subprocess
import sys

from tests.commands import evenhand

# Modules that are slow to import, or that only one command needs.
HEAVY = {"torch", "numpy", "pydantic", "grpc", "rich", "yaml", "scipy", "sklearn"}


def test_help_lists_every_command_and_imports_none():
    code = (
        "import sys; from monitor.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        f"sys.exit(', '.join({HEAVY!r} & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert result.stderr.strip() == ""
    for command in ("demo", "fit", "bundle", "config"):
        assert f"\n  {command} " in result.stdout


def test_every_command_has_help():
    for command in (
        ["demo"],
        ["fit"],
        ["bundle", "inspect"],
        ["bundle", "verify"],
        ["config", "check"],
    ):
        result = evenhand(*command, "--help")
        assert result.exit_code == 0
        assert "Usage: " in result.stdout


def test_an_unknown_command_is_rejected():
    result = evenhand("bundel")
    assert result.exit_code == 2
    assert "No such command 'bundel'" in result.stderr


def test_the_console_script_and_the_module_print_the_same():
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="evenhand")
    assert script.value == "monitor.cli:main"
    result = subprocess.run(
        [sys.executable, "-m", "monitor", "--version"], check=True, capture_output=True, text=True
    )
    assert result.stdout.startswith("evenhand ")
