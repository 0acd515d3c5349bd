"""`--modernize`: improvements that FSDP1 did not have, added to each wrap that is translated.

They are calls of small functions of the helper module on the sharded model, in the order in which they have
to come: checkpointing, compilation, prefetching.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module
from codemods.editing.code import code, insert_after, join, stands_alone
from codemods.model import Code, Edit, Span
from codemods.project import Project
from codemods.shard_call import Argument, Translation

CHOICES = ("ac=full", "ac=selective", "compile", "float8", "units", "prefetch=N", "mesh=NAME:SIZE,...")
_CHECKPOINTS = re.compile(r"checkpointing|checkpoint_wrapper|utils\.checkpoint\b")
_COMPILES = re.compile(r"(?<!\bre)(?<!\bregex)\.compile\(")
_FLOAT8 = re.compile(r"convert_to_float8_training|Float8Linear|transformer_engine")
_MESH = re.compile(r"mesh=([A-Za-z_]\w*):[1-9]\d*(,([A-Za-z_]\w*):[1-9]\d*)?")
_MODEL_PARALLEL = frozenset({"tp", "cp", "pp", "ep", "sp"})
_SHARDED = "sharded"
_ORDER = ("float8", "mesh", "ac", "compile", "prefetch")
_PARTS = "its parts are wrapped by hand"


@dataclass(frozen=True, slots=True)
class Improved:
    """What is added to a wrap.

    Attributes:
        calls: behind the wrap, with `{model}` in text for the sharded model.
        before: functions that the model goes through before it is sharded, and that give it back.
        mesh: what every `fully_shard` of the model is given; empty for its own.
        left_out: words of the command line that are not heeded, and why.
        asked_behind: the words that `calls` are for.
    """

    calls: tuple[Code, ...] = ()
    before: tuple[Code, ...] = ()
    mesh: Code = ()
    left_out: tuple[tuple[str, str], ...] = ()
    asked_behind: tuple[str, ...] = ()


def words_of(items: Iterable[str]) -> tuple[str, ...]:
    """The words of a list with commas; those within `mesh=replicate:2,shard:8` belong to it."""
    pieces = [piece.strip() for item in items for piece in item.split(",")]
    words: list[str] = []
    for piece in pieces:
        if words and words[-1].startswith("mesh=") and re.fullmatch(r"\w+:\d+", piece):
            words[-1] += f",{piece}"
        else:
            words.append(piece)
    return tuple(dict.fromkeys(words))


def is_choice(word: str) -> bool:
    """Whether a word of the command line is an improvement that can be asked for."""
    mesh = _MESH.fullmatch(word)
    if mesh is not None:
        return mesh[1] != mesh[3] and not {mesh[1], mesh[3]} & _MODEL_PARALLEL
    return word in CHOICES[:5] or re.fullmatch(r"prefetch=[1-9]\d*", word) is not None


def contradictions(words: Iterable[str]) -> list[str]:
    """Improvements that are asked for in two ways."""
    heads = [word.partition("=")[0] for word in dict.fromkeys(words)]
    return sorted({head for head in heads if heads.count(head) > 1})


def improved(
    project: Project,
    site: WrapCall,
    results: Sequence[tuple[Argument, Translation]],
    *,
    has_units: bool,
    has_parts: bool,
) -> Improved:
    """What is added to a wrap, and what is not because the program has it already.

    Args:
        results: what becomes of the wrap's arguments.
        has_units: parts of the model may be units of their own.
        has_parts: parts of the model are wrapped by themselves.
    """
    calls: list[Code] = []
    behind: list[str] = []
    before: list[Code] = []
    mesh: Code = ()
    left_out: list[tuple[str, str]] = []
    asked = [word for word in project.options.modernize if word != "units"]
    for word in sorted(asked, key=lambda w: _ORDER.index(w.partition("=")[0])):
        kind, _, value = word.partition("=")
        reason = _reason(site, kind, results, has_units=has_units, has_parts=has_parts)
        if reason:
            left_out.append((word, reason))
        elif kind == "mesh":
            mesh = _mesh(value, results)
        elif kind == "float8":
            before.append(code(None, "{helper.convert_to_float8}"))
        else:
            calls.append(_call(kind, value))
            behind.append(word)
    return Improved(tuple(calls), tuple(before), mesh, tuple(left_out), tuple(behind))


def _reason(
    site: WrapCall,
    kind: str,
    results: Sequence[tuple[Argument, Translation]],
    *,
    has_units: bool,
    has_parts: bool,
) -> str:
    """Why an improvement is not added; empty where it is."""
    text = site.module.text
    if kind == "ac" and _CHECKPOINTS.search(text):
        return "the file speaks of checkpointing, which may be of activations"
    if kind == "compile" and _COMPILES.search(text):
        return "the file compiles models itself"
    if kind == "float8" and _FLOAT8.search(text):
        return "the file speaks of layers that compute in float8"
    if kind in ("ac", "prefetch") and not has_units:
        return "the whole model is one unit"
    if kind == "float8" and (site.kind != "call" or site.wrapped is None):
        return "the model is not in sight where the wrap is made"
    if kind in ("mesh", "float8") and has_parts:
        return _PARTS
    if kind == "mesh" and _has_mesh(site, results):
        return "the wrap decides its mesh itself"
    return ""


def _has_mesh(site: WrapCall, results: Sequence[tuple[Argument, Translation]]) -> bool:
    """Whether a mesh, a group or a strategy other than FULL_SHARD and SHARD_GRAD_OP can be given."""
    is_open = any(keyword.arg is None for keyword in site.node.keywords) or site.kind != "call"
    return is_open or any(
        (argument.name in ("device_mesh", "process_group") and result.keep)
        or (argument.name == "sharding_strategy" and result.inline is None)
        for argument, result in results
    )


def _mesh(value: str, results: Sequence[tuple[Argument, Translation]]) -> Code:
    """`replicate:2,shard:8` as a mesh of the devices that are trained on."""
    names, sizes = zip(*(item.split(":") for item in value.split(",")), strict=True)
    is_cpu = any(a.name == "device_id" and "'cpu'" in ast.unparse(a.node) for a, _ in results)
    comma = "," if len(names) == 1 else ""
    shape = f"({', '.join(sizes)}{comma})"
    named = ", ".join(f'"{name}"' for name in names) + comma
    kind = "cpu" if is_cpu else "cuda"
    made = f'"{kind}", {shape}, mesh_dim_names=({named})'
    return (*code(None, "{torch.distributed.device_mesh.init_device_mesh}"), f"({made})")


def _call(kind: str, value: str) -> Code:
    match kind, value:
        case "ac", "selective":
            return code(None, "{helper.checkpoint_units_selectively}({{model}})")
        case "ac", _:
            return code(None, "{helper.checkpoint_units}({{model}})")
        case "compile", _:
            return code(None, "{helper.compile_units}({{model}})")
    return code(None, f"{{helper.prefetch_units}}({{{{model}}}}, ahead={value})")


def passed_through(site: WrapCall, functions: Iterable[Code]) -> list[Edit]:
    """Edits by which the wrapped model goes through functions where it is handed over."""
    edits: list[Edit] = []
    for function in functions:
        assert site.wrapped is not None
        span = site.module.span(site.wrapped)
        edits.append(Edit(site.module.path, Span(span.start, span.start), (*function, "(")))
        edits.append(Edit(site.module.path, Span(span.end, span.end), (")",)))
    return edits


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
