"""Public names are imported from the two packages, which load no third-party package on import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("monitor", "offline_audit")
# Folders and pages that use the public API.
USERS = ("monitor/demo", "tests", "benchmarks")
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

LOADED_MODULES = """
import sys
before = set(sys.modules)
import {package}
print(*(set(sys.modules) - before))
"""


def sources() -> Iterator[tuple[str, str]]:
    """File and Python code of every user of the public API."""
    for folder in USERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            code = path.read_text(encoding="utf-8")
            yield str(path.relative_to(ROOT)), code
            # This file has counterexamples in its strings.
            if path == Path(__file__):
                continue
            yield from ((str(path.relative_to(ROOT)), script) for script in scripts(code))
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        prompts = re.findall(r"^ *>>> ((?:from|import) .*)$", text, re.MULTILINE)
        for code in (*blocks, "\n".join(prompts)):
            yield str(path.relative_to(ROOT)), code


def scripts(code: str) -> Iterator[str]:
    """Python code in string literals, such as the scripts of subprocesses."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if not re.search(r"^ *(from|import) ", node.value, re.MULTILINE):
                continue
            script = textwrap.dedent(node.value)
            try:
                ast.parse(script)
            except SyntaxError:
                continue
            yield script


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Module and name of every name that the code takes from the two packages.

    Both `from monitor.client import Client` and `monitor.client.Client` are seen.
    """
    nodes = list(ast.walk(ast.parse(code)))
    modules: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if node.module.partition(".")[0] in PACKAGES:
                    yield node.module, alias.name
        elif isinstance(node, ast.Import):
            names = {alias.asname or alias.name: alias.name for alias in node.names}
            modules |= {a: m for a, m in names.items() if m.partition(".")[0] in PACKAGES}
    for node in nodes:
        if isinstance(node, ast.Attribute) and (module := modules.get(ast.unparse(node.value))):
            yield module, node.attr


def violation(module: str, name: str) -> bool:
    """Whether a public name is imported from an internal module."""
    package = import_module(module.partition(".")[0])
    if module == package.__name__ or name not in package.__all__:
        return False
    return find_spec(module) is None or (
        getattr(import_module(module), name, None) is getattr(package, name)
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_imported(package):
    module = import_module(package)
    assert module.__all__ == sorted(set(module.__all__))
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_loads_the_standard_library_only(package):
    """So that it stays fast; `benchmarks.startup` measures the time."""
    code = LOADED_MODULES.format(package=package)
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    top_level = {name.partition(".")[0] for name in process.stdout.split()}
    assert package in top_level
    assert top_level - sys.stdlib_module_names - {package} == set()


def test_public_names_are_imported_from_the_package():
    violations = [
        f"{file}: from {module} import {name}"
        for file, code in sources()
        for module, name in imported(code)
        if violation(module, name)
    ]
    assert violations == []


@pytest.mark.parametrize(
    "code",
    [
        "from monitor.client import Client",
        "from monitor.client import Client as Other",
        "import monitor.client\nmonitor.client.Client('')",
        "import monitor.client as c\nc.Client('')",
        "def run():\n    from offline_audit.permutation.test import permutation_test",
    ],
)
def test_a_public_name_from_an_internal_module_is_a_violation(code):
    assert [name for module, name in imported(code) if violation(module, name)]


def test_imports_in_the_scripts_of_subprocesses_are_seen():
    code = 'SCRIPT = """\nfrom monitor.client import Client\n"""'
    assert [pair for script in scripts(code) for pair in imported(script)] == [
        ("monitor.client", "Client")
    ]


@pytest.mark.parametrize(
    "code",
    [
        "from monitor import Client",
        "import monitor\nmonitor.Client('')",
        "import monitor.server\nmonitor.server.Server",
        "from monitor.traffic.store import Store",
    ],
)
def test_other_imports_are_allowed(code):
    assert not [name for module, name in imported(code) if violation(module, name)]


def test_the_scan_sees_imports():
    """An empty scan would pass all other tests."""
    (code,) = (code for file, code in sources() if file == "README.md" and "Window" in code)
    assert ("offline_audit", "audit_window") in set(imported(code))
