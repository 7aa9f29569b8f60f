"""Commands of the console script `evenhand`, one file each; `monitor.cli` loads them on demand."""
