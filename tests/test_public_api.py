"""Public names come from the two packages, which import fast and load nothing heavy."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("monitor", "offline_audit")
HEAVY = ("torch", "numpy", "ibis", "grpc")
# Seconds that importing a package may take.
SLOWEST = 0.1
RUNS = 5
# Folders and pages of users of the public names.
USERS = ("monitor/demo", "tests", "benchmarks")
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

TIMED_IMPORT = """
import sys, time
start = time.perf_counter()
import {package}
print(time.perf_counter() - start, *(name for name in {heavy!r} if name in sys.modules))
"""


def sources() -> Iterator[tuple[str, str]]:
    """Where Python stands that uses the public names, and what it says."""
    for folder in USERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        prompts = re.findall(r"^>>> ((?:from|import) .*)$", text, re.MULTILINE)
        for code in (*blocks, "\n".join(prompts)):
            yield str(path.relative_to(ROOT)), code


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Module and name of every `from module import name` of the two packages."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if node.module.partition(".")[0] in PACKAGES:
                    yield node.module, alias.name


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_imported(package):
    module = import_module(package)
    assert module.__all__ == sorted(set(module.__all__))
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_is_fast_and_loads_nothing_heavy(package):
    code = TIMED_IMPORT.format(package=package, heavy=HEAVY)
    times = []
    for _ in range(RUNS):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        )
        seconds, *loaded = done.stdout.split()
        assert loaded == []
        times.append(float(seconds))
    assert min(times) < SLOWEST


def test_public_names_are_imported_from_the_package():
    offenders = []
    for where, code in sources():
        for module, name in imported(code):
            package = import_module(module.partition(".")[0])
            if module != package.__name__ and name in package.__all__:
                same = getattr(import_module(module), name, None) is getattr(package, name)
                offenders += [f"{where}: from {module} import {name}"] * same
    assert offenders == []


def test_the_scan_sees_imports():
    """Guards against a scan that reads nothing and so finds nothing wrong."""
    found = {(module, name) for _, code in sources() for module, name in imported(code)}
    assert ("offline_audit", "audit_window") in found
    assert any(where == "README.md" and "audit_window" in code for where, code in sources())
