"""Little code draws all views.

Counted are lines of code of the renderers and of every module that makes trees: without blank lines,
comments, docstrings and imports. ``report/trace`` is data, and not counted.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "src" / "skipstone"
MOST = 1_580
LATER = {
    "compact/views.py": 180,
    "compact/maintenance_view.py": 90,
    "index/layout_view.py": 130,
    "table/views.py": 160,
}
"""Views that came with features after the others, each with its own limit."""
LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def makes_trees(module: Path) -> bool:
    """Whether a module builds nodes when it runs, rather than for the type checker."""
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ReportNode"
        for node in ast.walk(ast.parse(module.read_text()))
    )


def lines_of_code(module: Path) -> int:
    source = module.read_text()
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or is_text:
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for t in tokens if t.type not in LAYOUT for line in range(t.start[0], t.end[0] + 1)}
    return len(lines - left_out)


def test_drawing_takes_few_lines() -> None:
    renderers = {path for path in (PACKAGE / "report").glob("*.py") if path.name != "trace.py"}
    views = {path for path in PACKAGE.rglob("*.py") if makes_trees(path)} - renderers
    later = {path for path in views if str(path.relative_to(PACKAGE)) in LATER}
    named = {str(path.relative_to(PACKAGE)) for path in views - later}
    # Results know nothing of drawing, and commands draw nothing themselves.
    assert named == {
        "index/views.py",
        "inspection/views.py",
        "scan/row_view.py",
        "scan/views.py",
        "write/views.py",
    }
    counts = {path: lines_of_code(path) for path in renderers | views - later}
    assert 1_200 < sum(counts.values()) < MOST, counts
    for path in later:
        assert 20 < lines_of_code(path) < LATER[str(path.relative_to(PACKAGE))]
