"""The whole translation of one `with FSDP.state_dict_type(...)` block: all of it or nothing."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import TYPE_CHECKING

from codemods.analysis.module import Module
from codemods.analysis.own_state_dicts import own_state_dict
from codemods.analysis.process_groups import is_within_group
from codemods.analysis.state_dict_choices import KindChoice, choices, decided_at_run_time, is_for_other_stack
from codemods.analysis.state_dict_kinds import LOCAL
from codemods.analysis.state_dicts import (
    Block,
    Flags,
    Kind,
    Setting,
    Unknown,
    blocks,
    runs_within,
    setting_of,
)
from codemods.analysis.values import CallValue, options
from codemods.analysis.variable_reads import reads_of
from codemods.editing.apply import replaces
from codemods.editing.block_models import asks_no_model, gives_model_away, is_model, is_part
from codemods.editing.code import code, delete, replace, stands_alone, unwrap_block
from codemods.editing.optim_state_dicts import STATIC_SAVES, optim_saved
from codemods.editing.optim_state_loads import STATIC_LOADS, optim_loaded
from codemods.editing.resharding import resharded_before
from codemods.editing.sharded_optim import OLD_SHARDED_LOAD, load_sharded_optimizer
from codemods.editing.state_dicts import API, Edits, Refused, model_loaded, model_saved, plain_options
from codemods.editing.statements import remove_with_item
from codemods.model import Code, Edit, Ref
from codemods.shared_types import STATE_DICT_KIND, shared_call, shared_type

if TYPE_CHECKING:
    from codemods.project import Project

_NAMES = {
    (Kind.FULL, Flags(True, True)): "full_on_rank0",
    (Kind.FULL, Flags(False, False)): "full_on_every_rank",
    (Kind.SHARDED, Flags(True, False)): "shards_on_cpu",
}


@dataclass(frozen=True, slots=True, eq=False)
class BlockPlan:
    """Every edit of a block; they are applied together.

    Attributes:
        kind: of the state dicts in it; empty where the program decides, and the block stays.
        why: the program decides.
    """

    kind: str
    edits: tuple[Edit, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Shared:
    """Code that names the options of the model's and of the optimizer's state dicts, where there is a
    name."""

    model: Code | None = None
    optim: Code | None = None


def plan_block(project: Project, block: Block) -> BlockPlan | Refused:
    """The edits that replace a block, or why there are none."""
    why = decided_at_run_time(project).calls.get(block.call, "")
    setting = setting_of(project, block.module, block.call)
    if isinstance(setting, Unknown) and not why:
        return Refused(setting.why)
    calls = [n for s in block.node.body for n in ast.walk(s) if isinstance(n, ast.Call)]
    if isinstance(setting, Setting) and setting.kind is Kind.LOCAL:
        if not asks_no_model(project, block, calls):
            return Refused(LOCAL)
        return BlockPlan(setting.kind.value, tuple(_without_context(block, ())))
    for call in calls:
        reason = gives_model_away(project, block, call)
        if reason is not None:
            return Refused(reason)
    if why or isinstance(setting, Unknown):
        return _kept_block(project, block, calls, why)
    if is_within_group(project, block.module, block.model):
        setting = setting.of_group
    config_edits, shared = _configs(project, block, setting)
    before: Code = ()
    if shared.model is None and shared.optim is None:
        before, shared = _bound_options(project, block, setting, calls)
    edits = list(config_edits)
    for call in calls:
        translated = _translate(project, block, call, setting, shared)
        if isinstance(translated, Refused):
            return translated
        if translated and not runs_within(block.module, call, block.node):
            return Refused("a function that asks for the state dict in this block is used outside of it too")
        edits += translated
    edits += _without_context(block, before)
    return BlockPlan(setting.kind.value, _outermost(edits))


def _kept_block(project: Project, block: Block, calls: list[ast.Call], why: str) -> BlockPlan | Refused:
    """The block stays, with the helper module's context; the calls in it ask what is in force."""
    edits = [run_time_choice(block.module, block.call)]
    for call in calls:
        translated = _translate(project, block, call, None, _Shared())
        if isinstance(translated, Refused):
            return translated
        edits += translated
    return BlockPlan("", _outermost(edits), why)


def _outermost(edits: list[Edit]) -> tuple[Edit, ...]:
    """Without the edits of text that another edit does away with.

    `load_sharded_optimizer_state_dict` is given a state dict of the model, and what takes its place is not.
    """

    def is_gone(edit: Edit) -> bool:
        is_text = edit.span.start < edit.span.end
        return is_text and any(o.span != edit.span and replaces(o, edit.span) for o in edits)

    return tuple(edit for edit in edits if not is_gone(edit))


def run_time_choice(module: Module, call: ast.Call) -> Edit:
    """`FSDP.state_dict_type(...)` or `FSDP.set_state_dict_type(...)` as a call of the helper module."""
    assert isinstance(call.func, ast.Attribute)
    return Edit(module.path, module.span(call.func), (Ref(f"helper.{call.func.attr}"),))


def shared_by_choice(project: Project, choice: KindChoice) -> set[str]:
    """What a choice is changed together with: the names in it, and the values it takes from elsewhere."""
    given = [*choice.call.args[1:], *(k.value for k in choice.call.keywords if k.arg != "module")]
    found = {shared_call(choice.module, choice.call)}
    if not all(any(mark in ast.unparse(a) for mark in ("StateDictType", "DictConfig")) for a in given):
        found.add(shared_type(project, choice.module, STATE_DICT_KIND))
    return found


def _without_context(block: Block, before: Code) -> list[Edit]:
    if block.kept is not None:
        kept = delete(block.module, block.kept)
        return [kept, *_without_context(replaced(block, kept=None), before)]
    if len(block.node.items) == 1:
        return [unwrap_block(block.module, block.node, before=before)]
    return [remove_with_item(block.module, block.node, block.item)]


def _translate(
    project: Project, block: Block, call: ast.Call, setting: Setting | None, shared: _Shared
) -> Edits:
    """The edits of one call in a block; `setting` is None where the program decides."""
    module = block.module
    symbol = project.resolve(module, call.func)
    if symbol is not None and symbol.name == OLD_SHARDED_LOAD:
        return load_sharded_optimizer(project, module, call)
    if not isinstance(call.func, ast.Attribute):
        return []
    name, receiver = call.func.attr, call.func.value
    if name in ("state_dict", "load_state_dict") and (
        is_model(project, block, receiver) or is_part(block, receiver)
    ):
        holding = project.sharded_or_around(module, receiver)
        if own := own_state_dict(project, module, receiver, holding, name):
            return Refused(own)
        if name == "load_state_dict":
            return _after_resharding(project, block, call, model_loaded(module, call, setting), setting)
        return model_saved(module, call, setting, shared.model)
    holder = project.resolve(module, receiver)
    if holder is None or not holder.name.endswith(".FullyShardedDataParallel"):
        return []
    if name in STATIC_SAVES:
        edits = optim_saved(project, module, call, setting, shared.optim)
        return _after_resharding(project, block, call, edits, None)
    if name in STATIC_LOADS:
        return _after_resharding(project, block, call, optim_loaded(project, module, call, setting), None)
    return []


def _after_resharding(
    project: Project, block: Block, call: ast.Call, edits: Edits, setting: Setting | None
) -> Edits:
    """The edits of a call and, where it needs shards that can be gathered, what reshards the model first.

    Args:
        setting: of a model that is loaded: shards are loaded into whatever is there.
    """
    if isinstance(edits, Refused) or (setting is not None and setting.kind is Kind.SHARDED):
        return edits
    return [*resharded_before(project, block.module, call, block.model), *edits]


def _bound_options(
    project: Project, block: Block, setting: Setting, calls: list[ast.Call]
) -> tuple[Code, _Shared]:
    """`full_on_rank0 = StateDictOptions(...)` in place of the context, where it would be written twice."""
    saves = [c for c in calls if isinstance(c.func, ast.Attribute)]
    model = sum(c.func.attr == "state_dict" and is_model(project, block, c.func.value) for c in saves)  # type: ignore[attr-defined]
    optim = sum(c.func.attr == "optim_state_dict" for c in saves)  # type: ignore[attr-defined]
    same = setting.model == setting.optim
    text = plain_options(setting.kind, setting.model)
    name = _NAMES.get((setting.kind, setting.model))
    if not text or name is None or len(block.node.items) != 1 or not stands_alone(block.module, block.node):
        return (), _Shared()
    if model + (optim if same else 0) < 2 or block.module.scope_of(block.node).lookup(name) is not None:
        return (), _Shared()
    return code(None, f"{name} = {{{API}.StateDictOptions}}({text})"), _Shared(
        (name,), (name,) if same else None
    )


def _configs(project: Project, block: Block, setting: Setting) -> tuple[list[Edit], _Shared]:
    """Configuration objects bound to a name become `StateDictOptions` under that name, or go where none is
    needed."""
    edits: list[Edit] = []
    shared: list[Code | None] = []
    for node, flags in ((setting.model_config, setting.model), (setting.optim_config, setting.optim)):
        definition = _definition(project, block.module, node) if node is not None else None
        if definition is None or not _used_for_blocks_only(project, definition):
            shared.append(None)
            continue
        home, assignment = definition
        text = plain_options(setting.kind, flags)
        if text:
            edits.append(replace(home, assignment.value, code(None, f"{{{API}.StateDictOptions}}({text})")))
            assert node is not None
            shared.append(code(block.module, "{node}", node=node))
        else:
            edits.append(delete(home, assignment))
            shared.append(None)
    return edits, _Shared(*shared)


def _definition(project: Project, module: Module, node: ast.expr) -> tuple[Module, ast.Assign] | None:
    """The one assignment of a plain name that a configuration comes from."""
    if not isinstance(node, ast.Name):
        return None
    found = list(options(project.evaluate(module, node)))
    if len(found) != 1 or not isinstance(found[0], CallValue):
        return None
    home = found[0].origin.module
    for assignment in home.nodes(ast.Assign):
        assert isinstance(assignment, ast.Assign)
        if assignment.value is found[0].origin.node and len(assignment.targets) == 1:
            return (home, assignment) if isinstance(assignment.targets[0], ast.Name) else None
    return None


def _used_for_blocks_only(project: Project, definition: tuple[Module, ast.Assign]) -> bool:
    """Whether each use of a configuration is an argument of a context that is translated."""
    home, assignment = definition
    target = assignment.targets[0]
    assert isinstance(target, ast.Name)
    arguments = {a: b for b in blocks(project) for a in (*b.call.args, *(k.value for k in b.call.keywords))}
    going = _given_to_lasting(project)
    for module, node in reads_of(project, home, target):
        read = _definition(project, module, node)
        if read is not None and read != definition:
            continue  # the name has another value there
        if node not in going and (node not in arguments or _is_refused(project, arguments[node])):
            return False
    return True


def _given_to_lasting(project: Project) -> set[ast.expr]:
    """What calls of `set_state_dict_type` that go are given."""
    run_time, lasting = decided_at_run_time(project).calls, [c for c in choices(project) if c.lasts]
    if any(choice.is_local for choice in lasting):
        return set()
    return {
        argument
        for choice in lasting
        if choice.call not in run_time and not is_for_other_stack(project, choice)
        for argument in (*choice.call.args, *(k.value for k in choice.call.keywords))
    }


def _is_refused(project: Project, block: Block) -> bool:
    setting = setting_of(project, block.module, block.call)
    if isinstance(setting, Unknown) or setting.kind is Kind.LOCAL:
        return True
    if block.call in decided_at_run_time(project).calls:
        return True
    calls = [n for s in block.node.body for n in ast.walk(s) if isinstance(n, ast.Call)]
    if any(gives_model_away(project, block, call) is not None for call in calls):
        return True
    return any(isinstance(_translate(project, block, call, setting, _Shared()), Refused) for call in calls)
