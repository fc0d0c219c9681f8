"""Random SQL texts: conditions that may be sound, of literals of any length, and the same with damage."""

from __future__ import annotations

import random
from collections.abc import Callable

COLUMNS = ("i", "s", "f", "d", "ts", "b", "dt", "t", "bin", "`no such`", '"User Name"', "`User Name`")
FUNCTIONS = (
    *("abs", "length", "lower", "upper", "substr", "coalesce", "date_trunc", "year", "isnan", "startswith"),
    *(
        "concat",
        "nullif",
        "if",
        "contains",
        "unhex",
        "date",
        "bigint",
        "double",
        "rlike",
        "no_such",
        "current_date",
    ),
)
TYPES = (
    "int",
    "bigint",
    "double",
    "float",
    "string",
    "date",
    "timestamp",
    "boolean",
    "binary",
    "decimal(38, 9)",
)
OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "<=>", "==", "!=")
SIGNS = (
    *"()'\"`,.;:*+-/%=<>[]{}\\_ \n\0éE09x",
    *("--", "/*", "*/", " and ", " not ", " in (", "null", "\U0001f600"),
)
REGEX = (
    "a",
    ".",
    "[ab]",
    "(a|b)",
    "x{2,90}",
    "^",
    "$",
    "*",
    "+",
    "?",
    "\\\\d",
    "(",
    ")",
    "[",
    "{9999}",
    "(?i)",
)
LENGTHS = (0, 1, 2, 3, 5, 17, 20, 39, 77, 400, 4_301)


class Texts:
    """Makes texts; the same seed makes the same ones."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def text(self) -> str:
        """A condition, every third one damaged."""
        made = self.condition(self.rng.choice((0, 0, 1, 1, 2, 3)))
        return self._damaged(made) if self.rng.random() < 0.3 else made

    def condition(self, depth: int) -> str:
        """A condition of some depth."""
        rng = self.rng
        if depth > 0:
            parts = [self.condition(depth - 1) for _ in range(rng.choice((1, 2, 2, 3)))]
            joined = rng.choice((" and ", " or ")).join(f"({part})" for part in parts)
            return rng.choice(
                ("{}", "not ({})", "({}) is true", "({}) is unknown", "if({}, b, false)")
            ).format(joined)
        forms: tuple[Callable[[], str], ...] = (
            lambda: f"{self.value()} {rng.choice(OPERATORS)} {self.value()}",
            lambda: f"{self.value()} {rng.choice(OPERATORS)} {self.value()}",
            lambda: (
                f"{self.value()} in ({', '.join(self.value() for _ in range(rng.choice((1, 2, 5, 50))))})"
            ),
            lambda: f"{self.value()} between {self.value()} and {self.value()}",
            lambda: f"{self.value()} is {rng.choice(('', 'not '))}null",
            lambda: f"{self.value()} {rng.choice(('like', 'not like', 'ilike'))} {self._pattern()}",
            lambda: f"s rlike {self._regex()}",
            lambda: self.value(),
        )
        return rng.choice(forms)()

    def value(self, depth: int = 2) -> str:
        """A column, a literal or something made of them."""
        rng = self.rng
        kind = rng.randrange(12) if depth > 0 else rng.randrange(8)
        if kind < 4:
            return rng.choice(COLUMNS)
        if kind < 8:
            return self.literal()
        if kind == 8:
            left, right = self.value(depth - 1), self.value(depth - 1)
            return f"{left} {rng.choice(('+', '-', '*', '/', '%', '||', 'div'))} {right}"
        if kind == 9:
            return f"{rng.choice(('cast', 'try_cast'))}({self.value(depth - 1)} as {rng.choice(TYPES)})"
        if kind == 10:
            return f"case when {self.condition(0)} then {self.value(0)} else {self.value(0)} end"
        arguments = ", ".join(self.value(depth - 1) for _ in range(rng.randrange(4)))
        return f"{rng.choice(FUNCTIONS)}({arguments})"

    def literal(self) -> str:
        """A literal of any length and kind."""
        rng = self.rng
        digits = self._digits()
        return rng.choice(
            (
                *(digits, f"-{digits}", f"{digits}.{self._digits()}", f".{digits}", f"- -{digits}"),
                *(f"1e{digits[:9]}", f"{digits}e-{digits[:4]}", f"{digits}L", f"{digits}BD", f"{digits}D"),
                *(f"'{digits}'", f"'{digits}e{digits[:9]}'", f"'{self._digits()}-01-01'", "'2020-13-01'"),
                *(f"x'{digits}'", "null", "true", "'nan'", "'-inf'", '"text"', "'it''s'", "'\\u0041'"),
                *("date '2020-01-01'", "timestamp '2020-02-30'", f"timestamp '2020-01-01 00:00:00.{digits}'"),
                *("timestamp '9999-12-31 23:59:59 +18:00'", "timestamp '2020-01-01 00:00:00 Nowhere/Land'"),
                *(f"interval {digits} days", "date '0000-00-00'", "'24:61:00'", "'10:00:00.123456789'"),
            )
        )

    def _digits(self) -> str:
        return self.rng.choice("0123456789") * self.rng.choice(LENGTHS) or "1"

    def _pattern(self) -> str:
        rng = self.rng
        made = "".join(rng.choice("%a_\\") for _ in range(rng.randrange(6))) * rng.choice((1, 1, 3, 2_000))
        return "'" + made.replace("\\", "\\\\") + "'"

    def _regex(self) -> str:
        rng = self.rng
        return (
            "'"
            + "".join(rng.choice(REGEX) for _ in range(rng.randrange(1, 8))) * rng.choice((1, 1, 40))
            + "'"
        )

    def _damaged(self, text: str) -> str:
        rng = self.rng
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text) + 1)
            kind = rng.randrange(3)
            if kind == 0:
                text = text[:at] + rng.choice(SIGNS) + text[at:]
            elif kind == 1:
                text = text[:at] + text[at + rng.randrange(1, 4) :]
            else:
                text = text[:at] + text[max(at - rng.randrange(1, 30), 0) :]
        return text
