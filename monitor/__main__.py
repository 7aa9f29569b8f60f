"""`python -m monitor`: the same as the console script `evenhand`."""

from monitor.cli import main

main(prog_name="evenhand")
