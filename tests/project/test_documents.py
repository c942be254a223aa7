"""Documents: links, the index, the width of lines, the site; and the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmv2_topos.harness.page import END
from ina.cli.commands import app
from tests.extras import needs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md"))]
WIDTH = 110
FOLDERS = ("p4src", "softswitch", "controller", "hostlib", "bmv2_topos", "examples", "benchmarks", "tests")
INSTALL = r"install [^`]*?(?:ina|\.)\\?\[([\w,]+)\\?\]"
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a page that are no code."""
    in_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield number, line


def anchors(page: Path) -> set[str]:
    """Return what links may name of a page: its headings, as GitHub makes anchors of them."""
    headings = (line.lstrip("#").strip() for _, line in prose(page) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    """Return where the links and pictures of a page lead, but for those to other sites."""
    text = "\n".join(line for _, line in prose(page))
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target for target in targets if not target.startswith(("http://", "https://"))]


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.is_relative_to(ROOT), target
        assert other.exists(), target
        if anchor:
            assert anchor in anchors(other), target


@every_page
def test_lines_are_no_longer_than_the_page_is_wide(page: Path) -> None:
    """But for tables, and for what commands write between the marks of a page."""
    long, measured = [], False
    for number, line in prose(page):
        measured = line.startswith("<!-- measured") or (measured and line != END)
        if len(line) > WIDTH and not measured and not line.startswith("|"):
            long.append(f"{number}: {line}")
    assert not long


@pytest.mark.parametrize(
    "index", [DOCS / "index.md", DOCS / "results" / "README.md"], ids=["docs", "results"]
)
def test_an_index_lists_every_page(index: Path) -> None:
    listed = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)}
    below = set(index.parent.rglob("*.md")) if index.parent != DOCS else set(DOCS.rglob("*.md")) - results()
    assert below - {index} <= listed


def results() -> set[Path]:
    """Return the pages that the index of the results lists."""
    return set((DOCS / "results").glob("*.md")) - {DOCS / "results" / "README.md"}


def sources() -> Iterator[Path]:
    """Yield the files that may name a page."""
    yield ROOT / "Makefile"
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".p4", ".c", ".h", ".toml"):
                yield path


def test_pages_that_the_code_names_are_there() -> None:
    named = {
        (path, page)
        for path in sources()
        for page in re.findall(r"\bdocs/[\w/]+\.md", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert not {(path, page) for path, page in named if not (ROOT / page).exists()}


def test_invariants_are_numbered_from_one_on() -> None:
    text = (DOCS / "reference" / "invariants.md").read_text(encoding="utf-8")
    numbers = re.findall(r"^\| (\d+) \| ", text, re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]


def test_extras_that_are_named_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    named = {
        (str(path.relative_to(ROOT)), extra)
        for path in [*PAGES, *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]
        for listed in re.findall(INSTALL, path.read_text(encoding="utf-8"))
        for extra in listed.split(",")
    }
    assert len(named) > 20
    assert [(file, extra) for file, extra in sorted(named) if extra not in extras] == []


def test_the_changelog_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) <= 60


@needs("mkdocstrings")
@needs("material")
@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    commands = "".join(page.read_text() for page in (tmp_path / "reference" / "commands").glob("*.html"))
    assert {*re.findall(r'id="ina-([a-z]+)', commands)} == {
        command.name for command in app.registered_commands
    }
    served = (tmp_path / "reference" / "http-api.html").read_text()
    assert "POST /v1/jobs" in served


PACKAGES = ("benchmarks", "bmv2_topos", "controller", "hostlib", "ina", "softswitch")
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings_hold(module: str) -> None:
    if module.startswith("hostlib.torch"):
        pytest.importorskip("torch")
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted
    assert not found.failed, "see above: what was expected, and what came"
