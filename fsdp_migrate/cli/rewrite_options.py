"""The options of `rewrite`, from the command line and from `[tool.fsdp-migrate]` together."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsdp_migrate.errors import UsageError

if TYPE_CHECKING:
    from codemods.model import Options
    from fsdp_migrate.settings import RewriteSettings

DEFAULT_TORCH = "2.6"


@dataclass(frozen=True, slots=True)
class Given:
    """What stands on the command line; None where nothing does."""

    select: Sequence[str] | None = None
    ignore: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    unsafe_fixes: bool | None = None
    drop_fsdp1: bool | None = None
    whole_only: bool | None = None
    target_torch: str | None = None
    modernize: Sequence[str] | None = None


def rewrite_options(given: Given, settings: RewriteSettings) -> Options:
    """The command line first, then the settings, then the defaults.

    Raises:
        UsageError: a code, a rule or a version does not exist.
    """
    from codemods.model import Options

    told = settings.path or ""
    torch = (
        _torch_version("--target-torch", given.target_torch)
        if given.target_torch is not None
        else _torch_version(f"{told}: target-torch", settings.target_torch or DEFAULT_TORCH)
    )
    return Options(
        unsafe_fixes=_first(given.unsafe_fixes, settings.unsafe_fixes) or False,
        select=_codes("--select", given.select)
        if given.select
        else _codes(f"{told}: select", settings.select),
        ignore=_codes("--ignore", given.ignore)
        if given.ignore
        else _codes(f"{told}: ignore", settings.ignore),
        drop_fsdp1=_first(given.drop_fsdp1, settings.drop_fsdp1) or False,
        whole_only=_first(given.whole_only, settings.whole_only) or False,
        exclude=(*settings.exclude, *(given.exclude or ())),
        target_torch=torch,
        modernize=_improvements("--modernize", given.modernize, torch)
        if given.modernize
        else _improvements(f"{told}: modernize", settings.modernize, torch),
    )


_NOT_OFFERED = {
    "mesh": "There are `mesh=replicate:2,shard:8` and `mesh=dp:8`. Tensor parallelism (tp, cp, pp, ep) needs "
    "a plan for the model's layers, which only its author can make: apply it before the model is sharded "
    '(Transformers: `from_pretrained(..., tp_plan="auto")`).',
}


def _improvements(where: str, items: Sequence[str] | None, torch: tuple[int, int]) -> tuple[str, ...]:
    """What `--modernize` asks for.

    Raises:
        UsageError: nothing is called so, one thing is asked for in two ways, or torch is too old for it.
    """
    if not items:
        return ()
    from codemods.modernize import CHOICES, contradictions, is_choice, words_of

    words = words_of(items)
    for word in words:
        if not is_choice(word):
            hint = _NOT_OFFERED.get(word.partition("=")[0], f"There are {', '.join(CHOICES)}.")
            raise UsageError(f"{where}: {word or 'nothing'} is no improvement that can be added", hint=hint)
        if word.startswith("prefetch") and torch < (2, 5):
            raise UsageError(f"{where}: {word} needs torch 2.5", hint="Rewrite with --target-torch 2.5.")
    if twice := contradictions(words):
        raise UsageError(f"{where}: {', '.join(twice)} is asked for in two ways", hint="Choose one.")
    return words


def _first(*values: bool | None) -> bool | None:
    return next((value for value in values if value is not None), None)


def _codes(where: str, items: Sequence[str] | None) -> tuple[str, ...]:
    """Codes and prefixes of codes; names of rules become their codes.

    Raises:
        UsageError: nothing is called so; a typing error must not look like an all-clear.
    """
    wanted = [part.strip() for item in items or () for part in item.split(",") if part.strip()]
    if not wanted:
        return ()
    from codemods.rule import all_rules

    rules = all_rules()
    known = {code for rule in rules for code in rule.codes}
    found: list[str] = []
    for word in wanted:
        if re.fullmatch(r"FM\d{0,3}", word.upper()) and any(code.startswith(word.upper()) for code in known):
            found.append(word.upper())
        elif named := [code for rule in rules if rule.name == word for code in rule.codes]:
            found += named
        else:
            close = difflib.get_close_matches(word, [*known, *(rule.name for rule in rules)], n=3)
            hint = f"Perhaps: {', '.join(close)}." if close else "`fsdp-migrate rules` lists all of them."
            raise UsageError(f"{where}: no code and no rule is called {word}", hint=hint)
    return tuple(found)


def _torch_version(where: str, text: str) -> tuple[int, int]:
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        raise UsageError(f"{where} {text} is no version", hint="For example: --target-torch 2.6")
    version = int(parts[0]), int(parts[1])
    if version < (2, 4):
        raise UsageError(
            f"{where} {text} is too old: FSDP2 is in torch from 2.4 on, and public from 2.6 on",
            hint="Rewrite for 2.6 or later, and move the training to it.",
        )
    return version
