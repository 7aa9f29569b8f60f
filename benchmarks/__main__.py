"""Run every benchmark and list the claims that do not hold: `python -m benchmarks [--quick]`."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import benchmarks


def main() -> int:
    """Run them one by one; 1 if a claim does not hold or a script fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, within 60 s a script")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all claims to FILE")
    parser.add_argument("names", nargs="*", help="only these; all by default")
    options = parser.parse_args()
    names = options.names or _scripts()
    claims: list[dict[str, object]] = []
    failed: list[str] = []
    for number, name in enumerate(names, start=1):
        print(f"== {number} of {len(names)}: benchmarks.{name}", flush=True)
        started = time.monotonic()
        found = _run(name, quick=options.quick)
        print(f"   {time.monotonic() - started:.0f} s\n", flush=True)
        if found is None:
            failed.append(name)
        else:
            claims += found
    if options.json:
        options.json.write_text(json.dumps(claims, indent=2) + "\n")
    return _conclude(claims, failed)


def _scripts() -> list[str]:
    """Modules that report claims when they are run; the others are parts of them."""
    root = Path(benchmarks.__file__).parent
    return sorted(
        ".".join(file.relative_to(root).with_suffix("").parts)
        for file in root.rglob("*.py")
        if re.search(r"    report(_parts)?\(", file.read_text())
        and file.stem not in ("__main__", "claims")
    )


def _run(name: str, *, quick: bool) -> list[dict[str, object]] | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "claims.json")
        command = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(file)]
        done = subprocess.run(command + ["--quick"] * quick, check=False)
        if done.returncode != 0 or not file.exists():
            return None
        claims: list[dict[str, object]] = json.loads(file.read_text())
        return claims


def _conclude(claims: list[dict[str, object]], failed: list[str]) -> int:
    missed = [claim for claim in claims if not claim["holds"]]
    print(f"{len(claims)} claims, {len(missed)} do not hold, {len(failed)} scripts failed")
    for claim in missed:
        print(f"  MISSED  {claim['claim']}: {claim['figure']:.3g} {claim['unit']}, {claim['bar']}")
    for name in failed:
        print(f"  FAILED  benchmarks.{name}")
    return 1 if missed or failed else 0


if __name__ == "__main__":
    sys.exit(main())
