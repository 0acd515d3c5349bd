"""`--modernize`: improvements that FSDP1 did not have, added behind each wrap that is translated.

They are calls of small functions of the helper module on the sharded model, in the order in which they have
to come: checkpointing, compilation, prefetching.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module
from codemods.editing.code import code, insert_after, join, stands_alone
from codemods.model import Code, Edit, Span
from codemods.project import Project

CHOICES = ("ac=full", "ac=selective", "compile", "prefetch=N")
_CHECKPOINTS = re.compile(r"checkpointing|checkpoint_wrapper|utils\.checkpoint\b")
_COMPILES = re.compile(r"(?<!\bre)(?<!\bregex)\.compile\(")
_SHARDED = "sharded"
_ORDER = ("ac", "compile", "prefetch")


@dataclass(frozen=True, slots=True)
class Improved:
    """What is added behind a wrap.

    Attributes:
        calls: with `{model}` in text for the sharded model.
        left_out: words of the command line that are not heeded, and why.
    """

    calls: tuple[Code, ...]
    left_out: tuple[tuple[str, str], ...] = ()


def is_choice(word: str) -> bool:
    """Whether a word of the command line is an improvement that can be asked for."""
    return word in CHOICES[:3] or re.fullmatch(r"prefetch=[1-9]\d*", word) is not None


def contradictions(words: Iterable[str]) -> list[str]:
    """Improvements that are asked for in two ways."""
    heads = [word.partition("=")[0] for word in dict.fromkeys(words)]
    return sorted({head for head in heads if heads.count(head) > 1})


def improved(project: Project, site: WrapCall, *, has_units: bool) -> Improved:
    """What is added behind a wrap, and what is not because the program has it already.

    Args:
        has_units: parts of the model may be units of their own.
    """
    calls: list[Code] = []
    left_out: list[tuple[str, str]] = []
    text = site.module.text
    for word in sorted(project.options.modernize, key=lambda w: _ORDER.index(w.partition("=")[0])):
        kind, _, value = word.partition("=")
        if kind == "ac" and _CHECKPOINTS.search(text):
            left_out.append((word, "the file speaks of checkpointing, which may be of activations"))
        elif kind == "compile" and _COMPILES.search(text):
            left_out.append((word, "the file compiles models itself"))
        elif kind != "compile" and not has_units:
            left_out.append((word, "the whole model is one unit"))
        else:
            calls.append(_call(kind, value))
    return Improved(tuple(calls), tuple(left_out))


def _call(kind: str, value: str) -> Code:
    match kind, value:
        case "ac", "selective":
            return code(None, "{helper.checkpoint_units_selectively}({{model}})")
        case "ac", _:
            return code(None, "{helper.checkpoint_units}({{model}})")
        case "compile", _:
            return code(None, "{helper.compile_units}({{model}})")
    return code(None, f"{{helper.prefetch_units}}({{{{model}}}}, ahead={value})")


def added_edits(site: WrapCall, calls: Iterable[Code]) -> list[Edit] | None:
    """Edits that put calls behind the statement of a wrap; None where it is part of a larger expression."""
    module, statement = site.module, site.module.statement(site.node)
    if not stands_alone(module, statement):
        return None
    match statement:
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value) if value is site.node:
            return [insert_after(module, statement, _lines(calls, module.code(target)))]
        case ast.Return(value=value) if value is site.node and isinstance(site.wrapped, ast.Name):
            name = _local_name(module, site.wrapped)
            if name is None:
                return None
            head = Span(module.span(statement).start, module.span(site.node).start)
            behind = (*_lines(calls, name), f"\nreturn {name}")
            return [Edit(module.path, head, (f"{name} = ",)), insert_after(module, statement, behind)]
    return None


def _local_name(module: Module, model: ast.Name) -> str | None:
    """A name that may be assigned to beside a model: its own, where the function binds it. One from outside
    would be undefined where it is read."""
    scope = module.scope_of(model)
    if model.id in scope.bindings and model.id not in scope.outward:
        return model.id
    return _SHARDED if scope.lookup(_SHARDED) is None else None


def _lines(calls: Iterable[Code], model: str) -> Code:
    filled = [tuple(p.replace("{model}", model) if isinstance(p, str) else p for p in one) for one in calls]
    return join(filled, "\n")
