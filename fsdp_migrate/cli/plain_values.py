"""Values from the command line, converted here where they plainly are what a command takes.

typer (0.29) makes a pydantic validator for each option of a command, given or not, which is a third of what
a start costs. So texts, switches, numbers, choices and paths are converted here. Anything else goes to typer,
and so does every wrong value, which typer words as always.
"""

from __future__ import annotations

import functools
import os
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from typer.models import ParameterInfo


class NotPlainError(Exception):
    """Whatever this value is, typer is to say."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a parameter of a command takes.

    Attributes:
        of: str, bool, int, Path or a class of choices.
        optional: None is a value too.
        many: a list of them.
        info: what the command says of it to typer.
    """

    of: type
    optional: bool
    many: bool
    info: ParameterInfo

    def plain(self, value: Any) -> Any:
        """The value, converted.

        Raises:
            NotPlainError: it is none that can be told without typer.
        """
        if value is None and self.optional and not self.many:
            return None
        if self.many:
            if not isinstance(value, (list, tuple)) or not value:
                raise NotPlainError
            return [self._one(item) for item in value]
        return self._one(value)

    def _one(self, value: Any) -> Any:
        if type(value) is self.of and self.of in (str, bool):
            return value
        if self.of is int:
            return self._number(value)
        if self.of is Path and isinstance(value, (str, Path)) and os.access(value, os.R_OK):
            return Path(value)
        if issubclass(self.of, Enum):
            for choice in self.of:
                if value is choice or (isinstance(value, str) and value == choice.value):
                    return choice
        raise NotPlainError

    def _number(self, value: Any) -> int:
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            value = int(value)
        lowest, highest = self.info.min, self.info.max
        if (
            type(value) is not int
            or (lowest is not None and value < lowest)
            or (highest is not None and value > highest)
        ):
            raise NotPlainError
        return value


def kind_of(annotation: object) -> Kind | None:
    """What an annotation of a command's parameter asks for; None where only typer can tell."""
    if typing.get_origin(annotation) is not typing.Annotated:
        return None
    wanted, *notes = typing.get_args(annotation)
    info = next((note for note in notes if isinstance(note, ParameterInfo)), None)
    if info is None or info.callback or info.parser or not info.case_sensitive:
        return None
    options = [wanted]
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(wanted) if option is not type(None)]
    optional, many = options != [wanted], typing.get_origin(options[0]) is list
    of = typing.get_args(options[0])[0] if many else options[0]
    if len(options) > 1 or not isinstance(of, type):
        return None
    asks_of_path = info.dir_okay and info.file_okay and not (info.writable or info.resolve_path)
    known = of in (str, bool, int) or (of is Path and asks_of_path) or issubclass(of, Enum)
    return Kind(of, optional, many, info) if known else None


def convert_plainly(parameters: Iterable[Any], command: Callable[..., Any]) -> None:
    """Let parameters that typer made of a command's signature be converted here where that is plain."""
    annotations = typing.get_type_hints(command, include_extras=True)
    for parameter in parameters:
        kind = kind_of(annotations.get(parameter.name))
        if kind is not None:
            parameter.process_value = functools.partial(_process, kind, parameter.process_value)


def _process(kind: Kind, by_typer: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    try:
        return kind.plain(value)
    except NotPlainError:
        return by_typer(context, value)


def expect_no_help(command: Any, context: Any) -> None:
    """The same for `--help`, which a command has beside its own options."""
    option = command.get_help_option(context) if context is not None else None
    if option is not None:
        option.process_value = functools.partial(_unless_absent, option.process_value)


def _unless_absent(by_typer: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    return by_typer(context, value) if value else None
