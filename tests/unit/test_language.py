"""Names, messages and documentation use the words of the glossary."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *(ROOT / "docs").glob("*.md"),
]

AVOIDED = {
    "told",
    "untold",
    "asked",
    "found",
    "kept",
    "given",
    "known",
    "sifted",
    "sieved",
    "likeness",
    "dress",
    "manner",
    "way",
    "kin",
}
NAMED_FOR_UNITS = {"kept"}
"""Properties of results: a plan keeps and drops units."""

IDIOMS = re.compile(
    r"(?<!there )\b(is|are|was|were) no (?!longer|more|larger|smaller|later|earlier|better|worse)"
    r"|\banew\b|\bmend(s|ed|ing)?\b|\bbears? on\b|\b(takes?|took|taken) in\b(?! (order|place|part))"
    r"|\b(is|are) there no more\b|\bthe like\b|\bat hand\b|\bshall\b|\bthrice\b|\bunlawful",
    re.IGNORECASE,
)


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text()))]


def _names(path: Path) -> Iterator[tuple[str, str]]:
    yield "module", path.stem
    for node in _nodes(path):
        if isinstance(node, ast.ClassDef):
            yield "type", node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in NAMED_FOR_UNITS:
            yield "function", node.name


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, messages, help and every other string of a module."""
    for node in _nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_names_avoid_words_that_say_nothing() -> None:
    odd = [
        f"{path.relative_to(ROOT)}: {kind} {name}"
        for path in SOURCES
        for kind, name in _names(path)
        if _words(name) & AVOIDED
    ]
    assert odd == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_idiomatic(page: Path) -> None:
    odd = [
        (number, line) for number, line in enumerate(page.read_text().splitlines(), 1) if IDIOMS.search(line)
    ]
    assert odd == []


def test_strings_are_idiomatic() -> None:
    odd = [
        f"{path.relative_to(ROOT)}:{line}: {text.strip()[:100]}"
        for path in SOURCES
        for line, text in _texts(path)
        if IDIOMS.search(text)
    ]
    assert odd == []


def test_errors_begin_with_their_subject() -> None:
    odd = []
    for path in SOURCES:
        for node in _nodes(path):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", "")
            if re.search(r"(Error|Conflict|Issue)$", name):
                text = ast.unparse(node.args[0]).lstrip("f").strip("\"'")
                if re.match(r"(it|its|they|this|that)\b", text, re.IGNORECASE):
                    odd.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text[:100]}")
    assert odd == []
