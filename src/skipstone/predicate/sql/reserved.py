"""Reserved words as names of columns, which Spark takes without quotes: ``when = 1 AND from IN (2)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

_T = TokenType
# A word is a name if it stands where a value is expected, and one of these follows.
_COMPARISONS: Final = frozenset(
    {_T.EQ, _T.NEQ, _T.LT, _T.LTE, _T.GT, _T.GTE, _T.NULLSAFE_EQ, _T.IN, _T.IS, _T.LIKE, _T.ILIKE, _T.RLIKE}
    | {_T.BETWEEN}
)
_ARITHMETIC: Final = frozenset({_T.DASH, _T.PLUS, _T.STAR, _T.SLASH, _T.MOD, _T.DIV, _T.DPIPE})
_ENDS: Final = frozenset(
    {_T.AND, _T.OR, _T.R_PAREN, _T.COMMA, _T.DOT, _T.L_BRACKET, _T.NOT, _T.ALIAS, _T.THEN, _T.ELSE, _T.END}
)
# NOT IN (1, 2) can be a condition by itself in Spark: the negation of a function called IN.
_LOGIC: Final = frozenset({_T.AND, _T.OR, _T.NOT})
_AFTER_LOGIC: Final = frozenset({_T.EQ, _T.NEQ, _T.LT, _T.LTE, _T.GT, _T.GTE, _T.NULLSAFE_EQ})
_FOLLOWING: Final = _COMPARISONS | _ARITHMETIC | _ENDS | {None}
# After these a value is expected.
_BEFORE_VALUES: Final = (
    (_COMPARISONS - {_T.IS})
    | _ARITHMETIC
    | _LOGIC
    | {_T.L_PAREN, _T.COMMA, _T.CASE, _T.WHEN, _T.THEN, _T.ELSE, _T.SELECT}
)


def reserved_as_names(tokens: Sequence[Token]) -> list[Token] | None:
    """The tokens with reserved words as names where only a column can stand; None if there are none."""
    named = list(tokens)
    value = True
    for at, token in enumerate(tokens):
        opens = token.token_type == _T.WHEN and at > 0 and named[at - 1].token_type == _T.CASE
        word = token.token_type not in _NAMES or token.text.lower() == "if"
        if value and not opens and word and token.text.isidentifier():
            after = tokens[at + 1].token_type if at + 1 < len(tokens) else None
            if after in (_AFTER_LOGIC if token.token_type in _LOGIC else _FOLLOWING):
                named[at] = Token(_T.IDENTIFIER, token.text, token.line, token.col, token.start, token.end)
        value = named[at].token_type in _BEFORE_VALUES
    return named if any(a is not b for a, b in zip(named, tokens, strict=True)) else None


_NAMES: Final = frozenset({_T.IDENTIFIER, _T.VAR, _T.NULL, _T.TRUE, _T.FALSE, _T.STRING, _T.NUMBER})
