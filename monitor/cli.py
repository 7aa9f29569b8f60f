"""The console script `evenhand`: a table of commands, each loaded only when it runs."""

from __future__ import annotations

import importlib

import click

from monitor.errors import EvenhandError

__all__ = ["main"]

# Command, where it lives, and its line in the help: kept here so that help loads no command.
_COMMANDS = {
    "demo": ("monitor.demo.command:demo", "See it work, on a world whose truth is known."),
    "fit": ("monitor.fit.command:fit", "Learn what judges a classifier, audit it, write a bundle."),
    "serve": ("monitor.serve_command:serve", "Serve a classifier, and judge every prediction."),
    "bundle": ("monitor.bundle.command:bundle", "Inspect, verify or compile a bundle."),
    "log": ("monitor.traffic.command:log", "Inspect, expire or erase from a log; add outcomes."),
    "config": ("monitor.config_command:config", "Check a config file and show what holds."),
}

BAD_INPUT = 2


class _Commands(click.Group):
    """A group that imports a command's module when the command is called."""

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
    """Would this prediction have been different for another group?

    Fairness monitoring of classifiers that already decide about people.
    """
