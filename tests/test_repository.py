"""Versions are pinned, links exist, commands exist, and there are no pickles."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    parts = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in parts}


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert {"audit", "spark", "dev"} <= extras.keys()
    return [Requirement(text) for text in sum(extras.values(), project["dependencies"])]


def test_every_requirement_is_pinned_to_a_version_it_allows():
    for requirement in requirements():
        assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


def test_every_installed_requirement_has_the_pinned_version():
    pending, seen = requirements(), set()
    while pending:
        name = canonicalize_name(pending.pop().name)
        if name in seen:
            continue
        seen.add(name)
        try:
            installed = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # an extra that is not installed, or a dependency of another platform
        assert installed.version.partition("+")[0] == pins()[name], f"{name}: see CONTRIBUTING.md"
        pending += [
            r
            for r in map(Requirement, installed.requires or [])
            if not r.marker or r.marker.evaluate({"extra": ""})
        ]
    assert {"torch", "pydantic-core", "sympy"} <= seen


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_of_a_page_exists(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


def test_every_make_target_that_the_pages_name_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    required = {"demo", "test", "test-live", "lint", "bench", "smoke", "proto", "clean"}
    named = {t for page in PAGES for t in re.findall(r"`make ([\w-]+)", page.read_text())}
    assert required | named <= targets


def test_no_file_in_the_repository_is_a_pickle():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        file = ROOT / name
        assert file.suffix not in {".pkl", ".pickle", ".pt", ".pth", ".joblib"}, name
        assert not file.exists() or file.read_bytes()[:1] != b"\x80", name


def test_the_example_of_the_bundle_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/bundle.md").read_text()
    example, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "docs/bundle.md", "exec"), {})  # noqa: S102 - our own example
    assert (tmp_path / "my-bundle" / "manifest.json").exists()
