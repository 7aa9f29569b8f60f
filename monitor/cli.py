"""The console script `evenhand`: a table of commands, each loaded only when it runs."""

from __future__ import annotations

import importlib

import click

from monitor.errors import EvenhandError

__all__ = ["main"]

# Module, function and help text of each command; here, so that --help imports no command.
_COMMANDS = {
    "demo": (
        "monitor.commands.demo:demo",
        "Run a demo on a synthetic world with known counterfactuals.",
    ),
    "fit": (
        "monitor.commands.fit:fit",
        "Fit and audit a bundle for a classifier.",
    ),
    "serve": ("monitor.commands.serve:serve", "Serve a classifier, and score every prediction."),
    "bundle": ("monitor.commands.bundle:bundle", "Inspect, verify, compile or update a bundle."),
    "log": (
        "monitor.commands.log:log",
        "Inspect or compact a log, import outcomes, expire files, erase requests.",
    ),
    "config": (
        "monitor.commands.config:config",
        "Check a config file, or print the config reference.",
    ),
}

BAD_INPUT = 2


class _Commands(click.Group):
    """A group that imports the module of a command when the command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except EvenhandError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(BAD_INPUT)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="evenhand", message="%(prog)s %(version)s")
def main() -> None:
    """Fairness monitoring of deployed classifiers.

    Would this prediction have been different for the same person in another group?
    """
