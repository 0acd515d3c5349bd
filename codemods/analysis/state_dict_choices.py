"""Which kind of state dict FSDP1 gives at a place, and for which models the program decides when it runs.

Source: `torch/distributed/fsdp/fully_sharded_data_parallel.py` (`state_dict_type`, `set_state_dict_type`),
torch 2.6 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from codemods.analysis.holding import Maybe, Sharded, WrapCall
from codemods.analysis.module import Module
from codemods.analysis.process_groups import is_within_group
from codemods.analysis.state_dict_kinds import CALLERS_DEPTH, LOCAL, around_callers, decided
from codemods.analysis.state_dicts import (
    FSDP_CLASS,
    Block,
    Kind,
    Setting,
    Unknown,
    argument,
    blocks,
    chosen_for_a_part,
    enclosing,
    setting_of,
    sites_of,
)
from codemods.analysis.values import options

if TYPE_CHECKING:
    from codemods.project import MethodCall, Project

OTHER_STACK = "it is for FSDP1 models only; what stands beside it for FSDP2 models runs after the rewrite"
_VERSIONS = re.compile(r"fsdp_?version|is_fsdp_?[12]\b|fsdp2", re.IGNORECASE)
_NATIVE = ("torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard")


@dataclass(frozen=True, slots=True)
class InForce:
    """The setting at a place, and the block of the same function it comes from, if any."""

    setting: Setting
    block: Block | None = None


@dataclass(frozen=True, slots=True)
class AtRunTime:
    """The program decides when it runs: why, and the block of the same function it is decided in, if any."""

    why: str
    block: Block | None = None


Answer: TypeAlias = "InForce | AtRunTime | Unknown"


@dataclass(frozen=True, slots=True, eq=False)
class KindChoice:
    """One call of `state_dict_type` or `set_state_dict_type`.

    Attributes:
        lasts: it is `set_state_dict_type`, which holds until the next one.
        block: the `with` that enters it and nothing else does.
        why: why the program decides when it runs; empty where the text says it all.
    """

    module: Module
    call: ast.Call
    model: ast.expr | None
    setting: Setting | Unknown
    lasts: bool
    block: Block | None
    why: str

    @property
    def is_local(self) -> bool:
        """Whether it asks for flat parameters."""
        return isinstance(self.setting, Setting) and self.setting.kind is Kind.LOCAL

    def sites(self, project: Project) -> frozenset[WrapCall]:
        """The wraps its model can come from, as far as they are known."""
        return sites_of(project, self.module, self.model)

    def subject(self, project: Project) -> _Subject:
        """Those, and the group of its file."""
        return _subject(project, self.module, self.model)


@dataclass(frozen=True, slots=True)
class RunTime:
    """What is decided when the program runs.

    Attributes:
        sites: wraps of the models concerned.
        anywhere: groups of files with a choice for a model that was not found, so that any can be concerned.
        groups: groups of files with any such choice.
        calls: choices, by their call, with the reason.
    """

    sites: frozenset[WrapCall]
    anywhere: frozenset[str]
    groups: frozenset[str]
    calls: dict[ast.Call, str]

    def concerns(self, subject: _Subject) -> bool:
        """Whether a model is; where its wraps are not known, whether any of its files is."""
        sites, group = subject
        return group in self.anywhere or bool(self.sites & sites) or (group in self.groups and not sites)


_Subject: TypeAlias = "tuple[frozenset[WrapCall], str]"
"""The wraps a model can come from, and the group of files that speak of it."""


def choices(project: Project) -> list[KindChoice]:
    """Every choice of a kind that FSDP1 is given."""
    entered = {block.call: block for block in blocks(project)}
    found = []
    for name in ("state_dict_type", "set_state_dict_type"):
        for use in project.static_calls(name):
            setting = setting_of(project, use.module, use.node)
            block, lasts = entered.get(use.node), name.startswith("set_")
            why = setting.why if isinstance(setting, Unknown) else ""
            if not why and not lasts:
                why = _why_not_a_block(block)
            statement = use.module.statement(use.node)
            if not why and lasts and not (isinstance(statement, ast.Expr) and statement.value is use.node):
                why = "the settings that were in force before are kept for later"
            model = argument(use.node, 0, "module")
            found.append(KindChoice(use.module, use.node, model, setting, lasts, block, why))
    return found


def _why_not_a_block(block: Block | None) -> str:
    if block is None:
        return "the `state_dict_type` context is kept and entered elsewhere"
    if _gives_way(block.node.body):
        return "what is done inside of the `state_dict_type` context stands elsewhere, at a `yield`"
    return ""


def _gives_way(body: list[ast.stmt]) -> bool:
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))
    return False


def is_for_other_stack(project: Project, choice: KindChoice) -> bool:
    """Whether a choice is made for models of FSDP1 only, beside code for models of FSDP2."""
    return any(project.uses(name) for name in _NATIVE) and _is_under_version(choice.module, choice.call)


def serves_both_stacks(module: Module, node: ast.AST, told: Answer) -> bool:
    """Whether a state dict under a context that only models of FSDP1 have is asked of both kinds.

    For models of FSDP2 such a context is none, and the code beneath it takes the shards that they give.
    """
    return isinstance(told, Unknown) and told.why == OTHER_STACK and not _is_under_version(module, node)


def _is_under_version(module: Module, node: ast.AST) -> bool:
    """Whether a place is in the branch that a question about the version of FSDP leads to."""
    child = node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp) and _VERSIONS.search(ast.unparse(parent.test)):
            body = parent.body if isinstance(parent.body, list) else [parent.body]
            if any(child is part for part in body):
                return True
        child = parent
    return False


def decided_at_run_time(project: Project) -> RunTime:
    """For which models the program decides when it runs, and by which choices."""
    found = project.memo.get("state_dict_kinds")
    if not isinstance(found, RunTime):
        found = _decided_at_run_time(project)
        project.memo["state_dict_kinds"] = found
    return found


def _decided_at_run_time(project: Project) -> RunTime:
    told = [c for c in choices(project) if not c.is_local and not is_for_other_stack(project, c)]
    calls = {choice.call: choice.why for choice in told if choice.why}
    # What a block chooses holds within it, and where the functions called in it ask; the rest holds anywhere.
    waiting = [c.subject(project) for c in told if c.why and (c.lasts or _why_not_a_block(c.block))]
    for use in project.static_calls("get_state_dict_type") if told else ():
        waiting.append(_subject(project, use.module, argument(use.node, 0, "module")))
    asked = list(_bare_calls(project))
    for call, model in asked:
        decision = decided(project, call.module, call.node, model)
        if isinstance(decision, Unknown) and decision.why != LOCAL:
            waiting.append(_subject(project, call.module, model))
    run_time = _run_time(waiting, calls)
    while waiting:
        more = [c for c in told if c.lasts and c.call not in calls and run_time.concerns(c.subject(project))]
        if not more:
            break
        for choice in more:
            calls[choice.call] = "what is in force elsewhere is decided at run time"
        waiting += [choice.subject(project) for choice in more]
        run_time = _run_time(waiting, calls)
    for call, model in asked:
        if run_time.concerns(_subject(project, call.module, model)):
            for block in around_callers(project, call.module, call.node, CALLERS_DEPTH):
                calls.setdefault(block.call, "functions called inside ask at run time")
    return run_time


def _run_time(subjects: list[_Subject], calls: dict[ast.Call, str]) -> RunTime:
    sites = frozenset(site for found, _ in subjects for site in found)
    anywhere = frozenset(group for found, group in subjects if not found)
    return RunTime(sites, anywhere, frozenset(group for _, group in subjects), calls)


def _subject(project: Project, module: Module, model: ast.expr | None) -> _Subject:
    return sites_of(project, module, model), project.group(module.path)


def _bare_calls(project: Project) -> Iterator[tuple[MethodCall, ast.expr]]:
    """Calls outside of blocks whose answer depends on what is in force, with the model they are about."""
    for call in project.method_calls("state_dict", "load_state_dict"):
        is_sharded = isinstance(project.sharded(call.module, call.receiver), Sharded | Maybe)
        if is_sharded and enclosing(project, call.module, call.node, call.receiver) is None:
            yield call, call.receiver
    for call in project.static_calls("optim_state_dict", "optim_state_dict_to_load"):
        model = argument(call.node, 0, "model")
        if model is not None and enclosing(project, call.module, call.node, None) is None:
            yield call, model


def in_force(project: Project, module: Module, node: ast.AST, model: ast.expr) -> Answer:
    """The setting at `node` for the sharded model that `model` holds there."""
    part = chosen_for_a_part(project, module, node, model)
    told = Unknown(part) if part is not None else _in_force(project, module, node, model)
    if isinstance(told, InForce) and is_within_group(project, module, model):
        return replace(told, setting=told.setting.of_group)
    return told


def _in_force(project: Project, module: Module, node: ast.AST, model: ast.expr) -> Answer:
    run_time = decided_at_run_time(project)
    block = enclosing(project, module, node, model)
    if block is not None:
        if block.call in run_time.calls:
            return AtRunTime(run_time.calls[block.call], block)
        setting = setting_of(project, module, block.call)
        return setting if isinstance(setting, Unknown) else InForce(setting, block)
    foreign = _foreign_context(project, module, node, model) or _under_other_stack(project, module, node)
    if foreign is not None:
        return foreign
    decision = decided(project, module, node, model)
    if isinstance(decision, Unknown) and decision.why == LOCAL:
        return decision
    if isinstance(decision, Unknown):
        return AtRunTime(decision.why)
    if run_time.concerns(_subject(project, module, model)):
        return AtRunTime("the kind of state dict is decided at run time")
    return InForce(decision or Setting())


def _under_other_stack(project: Project, module: Module, node: ast.AST) -> Unknown | None:
    """Whether a kept context around a place is made for models of FSDP1 only."""
    for parent in module.ancestors(node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        for item in parent.items if isinstance(parent, ast.With) else ():
            made = {value.origin.node for value in options(project.evaluate(module, item.context_expr))}
            for choice in choices(project) if made else ():
                if choice.call in made and is_for_other_stack(project, choice):
                    return Unknown(OTHER_STACK)
    return None


def _foreign_context(project: Project, module: Module, node: ast.AST, model: ast.expr) -> Unknown | None:
    """A context of another library, around a place, that may choose for the model it is given."""
    for parent in module.ancestors(node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        for item in parent.items if isinstance(parent, ast.With) else ():
            call = item.context_expr
            if not isinstance(call, ast.Call) or "state_dict" not in ast.unparse(call.func).lower():
                continue
            symbol = project.resolve(module, call.func)
            given = [ast.unparse(a) for a in (*call.args, *(k.value for k in call.keywords))]
            if symbol is None or symbol.module is not None or symbol.name == f"{FSDP_CLASS}.state_dict_type":
                continue
            if ast.unparse(model) in given:
                return Unknown(f"`{symbol.name}` decides which kind of state dict this is")
    return None
