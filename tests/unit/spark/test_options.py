"""Names of columns in the texts of options."""

from __future__ import annotations

import pytest

from skipstone.spark.source import names_of


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, None),
        ("", []),
        ("a", ["a"]),
        ("a, b ,st.x,", ["a", "b", "st.x"]),
        ("`a,b`, `c``d` ,e f", ["a,b", "c`d", "e f"]),
    ],
)
def test_names(text: str | None, names: list[str] | None) -> None:
    assert names_of(text) == names
