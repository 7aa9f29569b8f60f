"""Run every benchmark and list the claims that do not hold.

`python -m benchmarks [--quick | --smoke] [NAME...]`. With `--smoke` every script runs at tiny
sizes, no claim is evaluated, and only a script that crashes or times out fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import benchmarks
from benchmarks.claims import Scale, add_scale_options, scale_of

# Timeout of a script in smoke mode; several times its duration on an idle machine.
_SMOKE_SECONDS = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Result of one script.

    Attributes:
        name: Module name below `benchmarks`.
        seconds: Wall-clock time.
        claims: Claims of the script; None if it failed.
    """

    name: str
    seconds: float
    claims: list[dict[str, object]] | None


def main() -> int:
    """Run the scripts one after another; return 1 if a claim does not hold or a script fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_scale_options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all claims to FILE")
    parser.add_argument("--seconds", type=float, help="timeout of a script")
    parser.add_argument("names", nargs="*", help="scripts to run; all by default")
    options = parser.parse_args()
    scale, names = scale_of(options), options.names or _scripts()
    limit = options.seconds or (_SMOKE_SECONDS if scale is Scale.SMOKE else None)
    runs = []
    for number, name in enumerate(names, start=1):
        print(f"== {number} of {len(names)}: benchmarks.{name}", flush=True)
        runs.append(_run(name, scale, limit))
        print(f"   {runs[-1].seconds:.0f} s\n", flush=True)
    claims = [claim for run in runs for claim in run.claims or []]
    failed = [run.name for run in runs if run.claims is None]
    if options.json:
        options.json.write_text(json.dumps(claims, indent=2) + "\n")
    if scale is Scale.SMOKE:
        return _conclude_smoke(runs, failed)
    return _conclude(claims, failed)


def _scripts() -> list[str]:
    """Modules that report claims; the other modules are parts of them."""
    root = Path(benchmarks.__file__).parent
    return sorted(
        ".".join(file.relative_to(root).with_suffix("").parts)
        for file in root.rglob("*.py")
        if re.search(r"    report(_parts)?\(", file.read_text())
        and file.stem not in ("__main__", "claims")
    )


def _run(name: str, scale: Scale, limit: float | None) -> _Run:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "claims.json")
        command = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(file)]
        command += [] if scale is Scale.FULL else [f"--{scale}"]
        # A new session, so that a timeout also ends the processes that the script started.
        script = subprocess.Popen(command, start_new_session=True)
        try:
            code = script.wait(limit)
        except subprocess.TimeoutExpired:
            print(f"   timed out after {limit:.0f} s", flush=True)
            os.killpg(script.pid, signal.SIGKILL)
            code = script.wait()
        claims = json.loads(file.read_text()) if code == 0 and file.exists() else None
    return _Run(name=name, seconds=time.monotonic() - started, claims=claims)


def _conclude(claims: list[dict[str, object]], failed: list[str]) -> int:
    missed = [claim for claim in claims if not claim["holds"]]
    print(f"{len(claims)} claims, {len(missed)} do not hold, {len(failed)} scripts failed")
    for claim in missed:
        print(f"  MISSED  {claim['claim']}: {claim['figure']:.3g} {claim['unit']}, {claim['bar']}")
    for name in failed:
        print(f"  FAILED  benchmarks.{name}")
    return 1 if missed or failed else 0


def _conclude_smoke(runs: list[_Run], failed: list[str]) -> int:
    for run in sorted(runs, key=lambda run: -run.seconds):
        outcome = "FAILED" if run.claims is None else f"{len(run.claims)} claims, not evaluated"
        print(f"{run.seconds:6.1f} s  benchmarks.{run.name}: {outcome}")
    total = sum(run.seconds for run in runs)
    print(f"{total:6.1f} s  {len(runs)} scripts, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
