"""docs/architecture.md names modules that exist, and every package."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "skipstone"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_every_path_exists() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+(?:/|\.py))`", PAGE))
    assert len(named) > 40
    missing = {path for path in named if not (PACKAGE / path).exists() and not (ROOT / path).exists()}
    assert not missing


def test_every_package_has_its_line() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    listed = set(re.findall(r"^\| `([a-z]+)/", PAGE, flags=re.MULTILINE))
    assert packages == listed


def test_modules_of_packages_exist() -> None:
    for package, modules in re.findall(r"^\| `([a-z]+/(?:states/)?)` \| (.*) \|$", PAGE, flags=re.MULTILINE):
        for name in re.findall(r"`([a-z_]+)/?`", modules):
            found = PACKAGE / package / name
            assert found.is_dir() or found.with_suffix(".py").exists(), (package, name)
