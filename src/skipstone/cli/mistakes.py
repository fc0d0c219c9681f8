"""Usage errors of Typer in plain words, with the next step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from skipstone.errors import did_you_mean, similar, suggestion


def explain(error: Any, args: Sequence[str]) -> None:
    """Change the message of a usage error; ``args`` are the arguments after ``skipstone``."""
    message, context = error.message, error.ctx
    if extra := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message, re.DOTALL):
        takes_condition = any(param.name == "where" for param in context.command.params)
        hint = _quoted(args, extra[1].split()) if takes_condition else ""
        error.message = f"unexpected arguments: {extra[1]}{hint}"
    elif getattr(error, "option_name", None) and message.startswith("No such option"):
        options = [name for param in context.command.params for name in (*param.opts, *param.secondary_opts)]
        # Without the dashes, which would make all of them similar.
        near = similar(error.option_name.lstrip("-"), [name[2:] for name in options if name[:2] == "--"])
        hint = f"; {suggestion([f'--{name}' for name in near])}" if near else ""
        error.possibilities, error.message = None, f"unknown option {error.option_name}{hint}"
    elif command := re.fullmatch(r"No such command ['\"](.*)['\"]\.", message, re.DOTALL):
        names = context.command.list_commands(context)
        hint = did_you_mean(command[1], names, f"available: {', '.join(names)}")
        error.message = f"unknown command {command[1]!r}; {hint}"
    else:
        error.message = _plain(message)


def _quoted(args: Sequence[str], extra: Sequence[str]) -> str:
    """The next step if the condition was not quoted, so that the shell has split it."""
    starts = [at for at in range(len(args)) if list(args[at : at + len(extra)]) == list(extra)]
    if not starts or not set(_OPERATORS).intersection(args):
        return ""
    first, end = starts[0], starts[0] + len(extra)
    # After LAKE or an option, up to the last word.
    while first > 2 and not args[first - 1].startswith("-"):
        first -= 1
    return f'; put the condition in quotes: "{" ".join(args[first:end])}"'


_OPERATORS = ("=", "==", "!=", "<>", "<", "<=", ">", ">=", "in", "is", "like", "between", "and", "or", "not")


def _plain(message: str) -> str:
    """Replace words of the library that validates values."""
    message = message.removeprefix("Value error, ")
    message = re.sub(r", unable to parse string as an? \w+", "", message)
    return re.sub(
        r"Input should be (a valid )?", lambda found: "must be an " if found[1] else "must be ", message
    )
