"""The command line starts fast and knows its commands."""

import subprocess
import sys

from tests.commands import evenhand

# What may take long to load, or belongs to one command alone.
HEAVY = {"torch", "numpy", "pydantic", "grpc", "rich", "yaml", "scipy", "sklearn"}


def test_help_lists_every_command_and_loads_none():
    code = (
        "import sys; from monitor.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        f"sys.exit(', '.join({HEAVY!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stderr.strip() == ""
    for command in ("demo", "fit", "bundle", "config"):
        assert f"\n  {command} " in done.stdout


def test_the_help_of_each_command_can_be_read():
    for command in (
        ["demo"],
        ["fit"],
        ["bundle", "inspect"],
        ["bundle", "verify"],
        ["config", "check"],
    ):
        done = evenhand(*command, "--help")
        assert done.exit_code == 0
        assert "Usage: " in done.stdout


def test_an_unknown_command_is_refused():
    done = evenhand("bundel")
    assert done.exit_code == 2
    assert "No such command 'bundel'" in done.stderr


def test_the_console_script_and_the_module_are_one():
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="evenhand")
    assert script.value == "monitor.cli:main"
    done = subprocess.run(
        [sys.executable, "-m", "monitor", "--version"], check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith("evenhand ")
