"""The wrap call written out: precision, the loop over the units, the call on the model."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, replace

from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module
from codemods.editing.code import code, delete, indentation, join, stands_alone
from codemods.editing.layout import DEFAULT
from codemods.editing.removal import named_comment
from codemods.editing.wrap_target import Target, is_nested, target_of
from codemods.model import Code, Edit, Hole, Ref
from codemods.project import Project
from codemods.shard_call import ONCE, Inline, Precision, UnitTest

_ORDER = ("mesh", "reshard_after_forward", "offload_policy")
_SHORT = {"torch.distributed": "dist"}
_FULLY_SHARD = "torch.distributed.fsdp.fully_shard"


@dataclass(frozen=True, slots=True)
class Refused:
    """The call cannot be written out where it stands."""

    why: str


@dataclass(frozen=True, slots=True)
class Written:
    """The edits of one wrap call, and its units in words."""

    edits: tuple[Edit, ...]
    units: str


def inline_edits(project: Project, site: WrapCall, parts: Sequence[Inline]) -> Written | Refused:
    """Replace the statement of a wrap call by `fully_shard` calls."""
    module = site.module
    statement = module.statement(site.node)
    target = target_of(site, statement)
    if target is None or not stands_alone(module, statement):
        return Refused("the call is part of a larger expression")
    returns_last = target.lead == ("return ",) and any(part.after for part in parts)
    target = replace(target, lead=()) if returns_last else target
    every: dict[str, Code] = {}
    for part in parts:
        for name, value in (*part.every.items(), *part.shared.items()):
            if name in every:
                return Refused(f"two keywords decide `{name}`")
            every[name] = value
    units = [p.units for p in parts if p.units is not None]
    precisions = [p.precision for p in parts if p.precision is not None]
    if len(units) > 1 or len(precisions) > 1:
        return Refused("two keywords decide one thing")
    unit = units[0] if units else None
    precision = precisions[0] if precisions else None
    nested = is_nested(project, site)
    width = (project.line_length or DEFAULT) - len(indentation(module, statement))
    writer = _Writer(module, statement, target, every, width)
    shared = (
        {name: value for part in parts for name, value in part.shared.items()} if unit is not None else {}
    )
    lines: list[Code] = [(comment,) for comment in _comments(site, statement)]
    lines += [target.first] if target.first is not None else []
    lines += [writer.with_model(c) for part in parts for c in part.before]
    lines += [writer.share(name, value) for name, value in shared.items()]
    lines += writer.sharding(unit, precision, is_nested=nested)
    lines += [writer.with_model(c) for part in parts for c in part.after]
    lines += [("return ", *target.model)] if returns_last else []
    indent = indentation(module, statement)
    body = tuple(p.replace("\n", "\n" + indent) if isinstance(p, str) else p for p in join(lines, "\n"))
    edits = [Edit(module.path, module.span(statement), body)]
    consumed = [s for part in parts for s in part.consumed]
    edits += [delete(module, s) for s in [*consumed, *(unit.consumed if unit is not None else ())]]
    return Written(tuple(edits), unit.words if unit is not None else "the whole model is one unit")


def _comments(site: WrapCall, statement: ast.stmt) -> list[str]:
    """Comments within the statement, which go before what replaces it; an argument's says whose it is."""
    module = site.module
    span = module.span(statement)
    text = module.text[span.start : span.end]
    first = module.line_of(span.start)
    owners = {module.line_of(module.span(k).end): k.arg or "" for k in site.node.keywords}
    found: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                trails = token.line[: token.start[1]].strip()
                owner = owners.get(first + token.start[0] - 1, "") if trails else ""
                found.append(named_comment(owner, token.string))
    except (tokenize.TokenError, IndentationError):
        pass  # a statement cut out of its block may end anywhere; what was seen until then counts
    return [comment for comment in found if comment]


@dataclass(slots=True)
class _Writer:
    module: Module
    statement: ast.stmt
    target: Target
    every: dict[str, Code]
    width: int

    def sharding(self, unit: UnitTest | None, precision: Precision | None, *, is_nested: bool) -> list[Code]:
        """The precision, the loop, the last call."""
        lines: list[Code] = []
        unit_policy: Code | None = None
        root_policy: Code | None = None
        if precision is not None and precision.dtypes:
            lines, unit_policy, root_policy = self._policies(unit, precision, is_nested=is_nested)
        if unit is not None:
            made_once = self._free("layer_classes")
            if unit.once:
                lines.append((f"{made_once} = ", *unit.once))
            lines.append(self._loop(unit, unit_policy, made_once))
        lines.append((*self.target.lead, *self._call(self.target.model, root_policy, self.target.lead)))
        return lines

    def _policies(
        self, unit: UnitTest | None, precision: Precision, *, is_nested: bool
    ) -> tuple[list[Code], Code, Code]:
        """Assignments of the policies, and what stands for the units' and for the root's."""
        casts = precision.unit_casts if is_nested else precision.root_casts
        policy = self._policy(precision, casts=casts)
        used = sum(self._size(v) + len(k) + 3 for k, v in self.every.items()) + self._size(self.target.model)
        if unit is None and self._size(policy) + self._size(self.target.lead) + used + 26 <= self.width:
            return [], policy, policy
        if unit is None or precision.unit_casts == casts:
            name = self._free("precision")
            policy = self._policy(precision, casts=casts, before=len(name) + 3)
            return [(f"{name} = ", *policy)], (name,), (name,)
        name, root = self._free("unit_precision"), self._free("root_precision")
        policy = self._policy(precision, casts=precision.unit_casts, before=len(name) + 3)
        new = code(None, "{dataclasses.replace}({n}, cast_forward_inputs={f})", n=name, f=str(casts))
        return [(f"{name} = ", *policy), (f"{root} = ", *new)], (name,), (root,)

    def share(self, keyword: str, value: Code) -> Code:
        """Make a value once, under its keyword's name."""
        name = self._free(keyword)
        self.every[keyword] = (name,)
        return (f"{name} = ", *value)

    def with_model(self, new: Code) -> Code:
        """Fill `{model}` in text."""
        out: list[str | Hole | Ref] = []
        for part in new:
            if isinstance(part, str) and "{model}" in part:
                before, *rest = part.split("{model}")
                out.append(before)
                for piece in rest:
                    out += [*self.target.model, piece]
            else:
                out.append(part)
        return tuple(out)

    def _loop(self, unit: UnitTest, policy: Code | None, made_once: str) -> Code:
        name = unit.variable or self._free("module")
        condition = self._condition(unit, name)
        test = tuple(p.replace(ONCE, made_once) if isinstance(p, str) else p for p in condition)
        call = self._call((name,), policy, ("        ",))
        return (
            f"for {name} in reversed(list(",
            *self.target.model,
            ".modules())):  # children before parents\n    if ",
            *test,
            ":\n        ",
            *(p.replace("\n", "\n        ") if isinstance(p, str) else p for p in call),
        )

    def _condition(self, unit: UnitTest, name: str) -> Code:
        """When a submodule is a unit; broken after a bracket where the line would be too long."""
        test = unit.test(name)
        head: Code = ()
        grouped = False
        if unit.may_match_root:
            head = (f"{name} is not ", *self.target.model, " and ")
            grouped = _has_or(self.module, test)
        whole = (*head, "(", *test, ")") if grouped else (*head, *test)
        if self._size(whole) + 8 <= self.width:
            return whole
        if grouped:
            return (*head, "(\n        ", *test, "\n    )")
        return ("(\n        ", *whole, "\n    )") if head else whole

    def _call(self, model: Code, policy: Code | None, lead: Code) -> Code:
        arguments = sorted(self.every.items(), key=lambda item: _ORDER.index(item[0]))
        if policy is not None:
            arguments.append(("mp_policy", policy))
        pieces = [model, *((f"{name}=", *value) for name, value in arguments)]
        return self._wrapped(
            (Ref(_FULLY_SHARD), "("), pieces, len(lead[0]) if lead and isinstance(lead[0], str) else 0
        )

    def _policy(self, precision: Precision, *, casts: bool, before: int = 0) -> Code:
        pieces: list[Code] = [(f"{name}=", *value) for name, value in precision.dtypes.items()]
        if not casts:
            pieces.append(("cast_forward_inputs=False",))
        return self._wrapped((Ref("torch.distributed.fsdp.MixedPrecisionPolicy"), "("), pieces, before)

    def _wrapped(self, head: Code, pieces: Sequence[Code], before: int) -> Code:
        """A call on one line, or with its arguments on a line of their own, or each on its own."""
        inner = join(pieces, ", ")
        size = self._size(head) + self._size(inner) + 1
        if before + size <= self.width or len(pieces) == 1:
            return (*head, *inner, ")")
        if self._size(inner) + 4 <= self.width:
            return (*head, "\n    ", *inner, "\n)")
        return (*head, "\n    ", *join(pieces, ",\n    "), ",\n)")

    def _size(self, new: Code) -> int:
        total = 0
        for part in new:
            match part:
                case str():
                    total += len(part)
                case Ref():
                    total += len(_SHORT.get(part.name, part.name.rpartition(".")[2]))
                case Hole():
                    total += part.span.end - part.span.start
        return total

    def _free(self, name: str) -> str:
        """A name that is not bound around the statement, `name_2` and so on if it is."""
        scope = self.module.scope_of(self.statement)
        candidate, number = name, 2
        while scope.lookup(candidate) is not None:
            candidate, number = f"{name}_{number}", number + 1
        return candidate


def _has_or(module: Module, test: Code) -> bool:
    text = "".join(
        p if isinstance(p, str) else module.text[p.span.start : p.span.end] if isinstance(p, Hole) else "x"
        for p in test
    )
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return True
    return isinstance(tree.body, ast.IfExp | ast.Lambda) or (
        isinstance(tree.body, ast.BoolOp) and isinstance(tree.body.op, ast.Or)
    )
