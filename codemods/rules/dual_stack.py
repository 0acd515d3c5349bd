"""An FSDP1 branch beside an FSDP2 branch of the same `if`."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.rule import FSDP, Edit, Finding, Hole, Module, Project, Safety, Span, finding, rule

DROPPED = "FM120"
_FSDP2 = ("torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard")
_FSDP2_CLASS = "torch.distributed.fsdp.FSDPModule"


class _Stack(enum.Enum):
    """What a branch is for."""

    FSDP1 = enum.auto()
    FSDP2 = enum.auto()
    NEITHER = enum.auto()


@dataclass(frozen=True, slots=True, eq=False)
class _Chain:
    """`if`, `elif` ... and the statements of the last `else`."""

    arms: list[ast.If]
    rest: list[ast.stmt]


@rule(
    "FSDP1 beside FSDP2",
    {DROPPED: "FSDP1 and FSDP2 stand side by side", "FM121": "an FSDP1 branch that cannot be dropped"},
    order=5,
)
def dual_stack(project: Project) -> Iterator[Finding]:
    """With `--drop-fsdp1` the FSDP1 branch of an `if` goes where another branch of it shards with FSDP2.

        if strategy == "fsdp":                     if strategy == "fsdp2":
            model = FSDP(model)                        model = fully_shard(model)
        elif strategy == "fsdp2":                  else:
            model = fully_shard(model)                 raise NotImplementedError(strategy)
        else:
            raise NotImplementedError(strategy)

    A branch is FSDP1's if it wraps with `FullyShardedDataParallel` or is taken for `isinstance(x, FSDP)`,
    FSDP2's if it calls `fully_shard`, itself or through functions of the project, or is taken for
    `isinstance(x, FSDPModule)`. Imports and variables that only the dropped branch used go with it.

    Whoever still asks for FSDP1 must be told: the branch is dropped where only the two are possible, or
    where the last `else` raises; where there is no `else` its body becomes a `raise`. A last `else` that
    does something else is left to a person, since FSDP1's users would silently land there.

    Without the option both branches stay, and the wrap in the FSDP1 branch is translated where it stands.
    """
    for module, around in _around_fsdp1(project).items():
        for chain in _chains(module):
            if not around.intersection(chain.arms):
                continue
            stacks = [_stack(project, module, arm.body, arm.test) for arm in chain.arms]
            last = _stack(project, module, chain.rest, None) if chain.rest else _Stack.NEITHER
            if _Stack.FSDP2 not in (*stacks, last) or _Stack.FSDP1 not in (*stacks, last):
                continue
            if not project.options.drop_fsdp1:
                yield finding(
                    module,
                    _header(chain.arms[0]),
                    DROPPED,
                    "FSDP1 and FSDP2 stand side by side; both branches stay (`--drop-fsdp1` removes FSDP1's)",
                    is_note=True,
                )
            else:
                yield _dropped(project, module, chain, stacks, last)


def _around_fsdp1(project: Project) -> dict[Module, set[ast.AST]]:
    """Module -> what stands around its wraps and its uses of FSDP1's class: few places, and fewer `if`s."""
    found: dict[Module, set[ast.AST]] = {}
    for site in project.wraps:
        found.setdefault(site.module, set()).update(site.module.ancestors(site.node))
    for use in project.uses(FSDP):
        found.setdefault(use.module, set()).update(use.module.ancestors(use.node))
    return found


def _header(node: ast.If) -> ast.expr:
    return node.test


def _chains(module: Module) -> Iterator[_Chain]:
    for node in module.nodes(ast.If):
        assert isinstance(node, ast.If)
        if _is_elif(module, node):
            continue
        arms = [node]
        while len(arms[-1].orelse) == 1:
            inner = arms[-1].orelse[0]
            if not isinstance(inner, ast.If) or not _is_elif(module, inner):
                break
            arms.append(inner)
        yield _Chain(arms, arms[-1].orelse)


def _is_elif(module: Module, node: ast.If) -> bool:
    return module.text.startswith("elif", module.span(node).start)


def _stack(project: Project, module: Module, body: list[ast.stmt], test: ast.expr | None) -> _Stack:
    asked = _asked_class(project, module, test) if test is not None else None
    if asked is not None:
        return asked
    wraps = any(site.module is module and _within(module, site.node, body) for site in project.wraps)
    shards = any(_shards(project, module, statement, 2) for statement in body)
    if wraps == shards:
        return _Stack.NEITHER
    return _Stack.FSDP1 if wraps else _Stack.FSDP2


def _asked_class(project: Project, module: Module, test: ast.expr) -> _Stack | None:
    if not isinstance(test, ast.Call) or getattr(test.func, "id", "") != "isinstance" or len(test.args) != 2:
        return None
    symbol = project.resolve(module, test.args[1])
    if symbol is None:
        return None
    return {FSDP: _Stack.FSDP1, _FSDP2_CLASS: _Stack.FSDP2}.get(symbol.name)


def _within(module: Module, node: ast.AST, body: list[ast.stmt]) -> bool:
    return any(parent in body for parent in (node, *module.ancestors(node)))


def _shards(project: Project, module: Module, root: ast.AST, depth: int) -> bool:
    """Whether code calls `fully_shard`, itself or through functions of the project."""
    for node in ast.walk(root):
        if not isinstance(node, ast.Call):
            continue
        symbol = project.resolve(module, node.func)
        if symbol is None:
            continue
        if symbol.name in _FSDP2:
            return True
        is_function = isinstance(symbol.node, ast.FunctionDef) and symbol.module is not None
        if not depth or not is_function or symbol.module is None or symbol.node is None:
            continue
        if _shards(project, symbol.module, symbol.node, depth - 1):
            return True
    return False


def _dropped(project: Project, module: Module, chain: _Chain, stacks: list[_Stack], last: _Stack) -> Finding:
    what = "the FSDP1 branch goes; FSDP2's stays"
    edits = _edits(project, module, chain, stacks, last)
    if edits is None:
        return finding(
            module,
            _header(chain.arms[0]),
            "FM121",
            "dropping the FSDP1 branch would send its users to another branch without a word",
            remedy="remove the FSDP1 branch, and refuse what used to choose it",
        )
    return finding(module, _header(chain.arms[0]), DROPPED, what, safety=Safety.SAFE, edits=edits)


def _edits(
    project: Project, module: Module, chain: _Chain, stacks: list[_Stack], last: _Stack
) -> list[Edit] | None:
    arms = chain.arms
    if last is _Stack.FSDP1:
        return [_only(module, arms[0], arms[0].body)] if len(arms) == 1 else None
    at = stacks.index(_Stack.FSDP1)
    if stacks.count(_Stack.FSDP1) > 1:
        return None
    arm = arms[at]
    if not arm.orelse:
        loud = _asked_class(project, module, arm.test) is not None
        return [_without_last(module, arm)] if loud else [_refusing(module, arm)]
    if len(arms) == 1:
        return [_only(module, arm, chain.rest)]
    is_never = _asked_class(project, module, arm.test) is not None
    raises = bool(chain.rest) and isinstance(chain.rest[-1], ast.Raise)
    if not is_never and not raises:
        return None if chain.rest else [_refusing(module, arm)]
    return [_without(module, arm)]


def _block(module: Module, body: list[ast.stmt]) -> Span:
    """The lines of a block, the comments before its first statement left out."""
    return Span(module.line_start(module.span(body[0]).start), module.span(body[-1]).end)


def _only(module: Module, node: ast.If, body: list[ast.stmt]) -> Edit:
    """One block in place of the whole `if`."""
    span = module.span(node)
    block = _block(module, body)
    shift = (span.start - module.line_start(span.start)) - (module.span(body[0]).start - block.start)
    return Edit(
        module.path,
        Span(module.line_start(span.start), span.end),
        (Hole(block, indent=shift, first_line=True),),
    )


def _without(module: Module, arm: ast.If) -> Edit:
    """An arm goes; the next one takes its keyword."""
    start = module.span(arm).start
    following = arm.orelse[0]
    if isinstance(following, ast.If) and _is_elif(module, following):
        keyword = module.span(following).start
        end = keyword if _is_elif(module, arm) else keyword + len("el")
        return Edit(module.path, Span(start, end), ())
    # The last arm before `else`: the lines from its `elif` to the `else` go.
    end = module.text.rindex("else", start, module.span(following).start)
    return Edit(module.path, Span(start, end), ())


def _without_last(module: Module, arm: ast.If) -> Edit:
    span = module.span(arm)
    if not _is_elif(module, arm):
        return Edit(module.path, span, ("pass",))
    previous = module.parent(arm)
    assert isinstance(previous, ast.If)
    return Edit(module.path, Span(module.span(previous.body[-1]).end, span.end), ())


def _refusing(module: Module, arm: ast.If) -> Edit:
    block = _block(module, arm.body)
    start = module.span(arm.body[0]).start
    text = 'raise ValueError("FSDP1 is no longer supported: choose FSDP2")'
    return Edit(module.path, Span(start, block.end), (text,))
