"""The command line, called in this process."""

from click.testing import CliRunner, Result

from monitor.cli import main


def evenhand(*arguments: object) -> Result:
    """Run `evenhand` with these arguments; unexpected exceptions are raised again."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
