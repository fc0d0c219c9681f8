"""Options that come together: a dataclass of them, as one parameter of each command that takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

_ONLY = inspect.Parameter.KEYWORD_ONLY


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer sees it: the options of a group in place of the parameter of its type."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    seen: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if not is_dataclass(hints[name]):
            seen.append(parameter.replace(kind=_ONLY, annotation=hints[name]))
            continue
        groups[name] = hints[name]
        types = get_type_hints(hints[name], include_extras=True)
        seen += [
            inspect.Parameter(field.name, _ONLY, default=field.default, annotation=types[field.name])
            for field in fields(hints[name])
        ]

    def run(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in seen}
    run.__signature__ = inspect.Signature(seen)  # type: ignore[attr-defined]
    return run
