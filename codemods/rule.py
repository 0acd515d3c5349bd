"""The door for rules: how to ask about the project, how to say what was found, how to write new code.

A rule is one file in `codemods/rules/methods`, `codemods/rules/names` or `codemods/rules/ecosystem`. It
registers itself by its decorator; nothing else has to be touched. The function's docstring is the manual page
(`fsdp-migrate explain FM310`). It is given the `Project` and yields findings:

    import ast
    from collections.abc import Iterator

    from codemods.rule import Finding, Maybe, No, Project, Safety, code, finding, replace, rule


    @rule("zero_grad_set_to_none", {"FM399": "`summon_everything` on a sharded model"})
    def summon_everything(project: Project) -> Iterator[Finding]:
        '''`model.summon_everything(x)` becomes `everything(model, x)`.

        FSDP1 did such and such; FSDP2 has no method for it. Where the receiver is a sharded model only on
        some paths, the call is left to a person.
        '''
        for call in project.method_calls("summon_everything"):
            holding = project.sharded(call.module, call.receiver)
            if isinstance(holding, No):
                continue
            if isinstance(holding, Maybe) or len(call.node.args) != 1:
                yield finding(call.module, call.node, "FM399",
                              "`summon_everything` does not exist on an FSDP2 model",
                              remedy="call `everything(model, x)` where the model is sharded")
                continue
            new = code(call.module, "{torch.distributed.fsdp.everything}({model}, {x})",
                       model=call.receiver, x=call.node.args[0])
            yield finding(call.module, call.node, "FM399",
                          "`summon_everything` becomes a function",
                          safety=Safety.SAFE, edits=[replace(call.module, call.node, new)])

Asking (see `codemods.project.Project`):

- `project.method_calls("name", ...)` every `x.name(...)`; `project.static_calls("name")` only
  `FSDP.name(...)`; `project.uses(canonical_name)` and `project.calls_of(canonical_name)` by meaning, aliases
  and re-exports followed.
- `project.sharded(module, expr)` -> `Sharded(sites) | Maybe(sites) | No()`; `project.optimizer_of(module,
  expr)`; `project.links.optimizers(module, expr)` gives the constructor calls, `project.links.held(...)` the
  raw answer.
- `project.wraps` every wrap call (`WrapCall.node`, `.module`, `.wrapped`).
- `project.evaluate(module, expr)` -> `Literal | Named | CallValue | Sequenced | DictValue | Choice | Opaque`;
  `options(value)` flattens choices. Each remembers where it was written (`value.origin.module`, `.node`).
- `module.parent(node)`, `.ancestors(node)`, `.statement(node)`, `.function(node)`, `.class_of(node)`,
  `.scope_of(node)`, `.code(node)` (source text), `.nodes(ast.With)`, `.calls()`, `.tree`, `.text`,
  `.span(node)`.

Writing. New code is a template: `{name}` keeps a piece of the original (an `ast` node; edits inside it are
kept), inserts text (a `str`) or other code (a tuple); `{torch.distributed.fsdp.fully_shard}`, any dotted
name, is spelled as the file imports it, and imported where it is not (imports that become unused go by
themselves); `{helper.shard_model}` names something of the helper module, which is written with exactly the
parts used. Edits: `replace(module, node, code)`, `insert_before(module, statement, code)`,
`insert_after(...)`, `delete(module, statement)`, `unwrap_block(module, with_statement, before=code)` (keeps
the body, moved to the left), `delete_argument(module, call, node)`, `append_argument(module, call, text)`.
Original text in no hole is gone, and edits of other rules that fall there are conflicts, which are reported.
A finding with `fades=True` is about the text at its place and nothing more: it is dropped where that text is
replaced by another rule.

The edits of one finding are applied together or not at all. `Safety.MANUAL` findings get a TODO comment
before their statement and carry no edits; `is_note=True` informs only.

Codes: FM1xx the wrap call and its keywords, FM2xx configuration types and policies, FM3xx methods, FM4xx
state dicts and checkpoints, FM5xx names and surroundings, FM9xx the files themselves; FM516 is every FSDP1
name no rule spoke of (`codemods.leftovers`).
"""

from __future__ import annotations

from codemods.analysis.conditions import branches_before, leaves
from codemods.analysis.exports import names_taken
from codemods.analysis.holding import Holding, Maybe, No, Sharded, WrapCall
from codemods.analysis.index import Symbol
from codemods.analysis.module import Module
from codemods.analysis.parameter_loops import ParameterLoop, parameter_loops
from codemods.analysis.state_dict_choices import (
    OTHER_STACK,
    AtRunTime,
    KindChoice,
    choices,
    decided_at_run_time,
    in_force,
    is_for_other_stack,
)
from codemods.analysis.state_dict_kinds import LOCAL
from codemods.analysis.state_dicts import Kind, Setting, Unknown, argument, same_model, setting_of
from codemods.analysis.state_dicts import blocks as state_dict_blocks
from codemods.analysis.state_dicts import enclosing as state_dict_block_around
from codemods.analysis.values import (
    CallValue,
    Choice,
    DictValue,
    Literal,
    Named,
    Opaque,
    Origin,
    Sequenced,
    Value,
    options,
)
from codemods.editing.code import (
    append_argument,
    code,
    delete,
    finding,
    insert_after,
    insert_before,
    insert_text,
    replace,
    stands_alone,
    unwrap_block,
)
from codemods.editing.optim_state_dicts import optim_saved
from codemods.editing.optim_state_loads import optim_loaded, uses_orig_params
from codemods.editing.removal import delete_aliases, delete_argument, delete_arguments
from codemods.editing.resharding import resharded_before
from codemods.editing.sharded_optim import load_sharded_optimizer
from codemods.editing.state_dict_blocks import BlockPlan, plan_block, run_time_choice, shared_by_choice
from codemods.editing.state_dicts import Refused, model_loaded, model_saved
from codemods.editing.statements import (
    annotation_words,
    can_only_be_sharded,
    homes_of,
    is_annotation,
    is_behind_branch_that_shards,
    is_by_library,
    is_result_used,
    is_under_rank0,
    is_unwrapped,
    is_where_not_instance,
    is_where_other_branch_shards,
    may_be_ddp,
    negated,
    remove_with_item,
    unwrapping_loop,
    values_named,
)
from codemods.model import Code, Edit, Finding, Hole, Options, Place, Ref, Safety, Span
from codemods.project import MethodCall, NameUse, Project
from codemods.registered_rules import Rule, all_rules, rule
from codemods.torch_names import FSDP, is_fsdp1_import

__all__ = [
    "FSDP",
    "LOCAL",
    "OTHER_STACK",
    "AtRunTime",
    "BlockPlan",
    "CallValue",
    "Choice",
    "Code",
    "DictValue",
    "Edit",
    "Finding",
    "Holding",
    "Hole",
    "Kind",
    "KindChoice",
    "Literal",
    "Maybe",
    "MethodCall",
    "Module",
    "NameUse",
    "Named",
    "No",
    "Opaque",
    "Options",
    "Origin",
    "ParameterLoop",
    "Place",
    "Project",
    "Ref",
    "Refused",
    "Rule",
    "Safety",
    "Sequenced",
    "Setting",
    "Sharded",
    "Span",
    "Symbol",
    "Unknown",
    "Value",
    "WrapCall",
    "all_rules",
    "annotation_words",
    "append_argument",
    "argument",
    "branches_before",
    "can_only_be_sharded",
    "choices",
    "code",
    "decided_at_run_time",
    "delete",
    "delete_aliases",
    "delete_argument",
    "delete_arguments",
    "finding",
    "homes_of",
    "in_force",
    "insert_after",
    "insert_before",
    "insert_text",
    "is_annotation",
    "is_behind_branch_that_shards",
    "is_by_library",
    "is_for_other_stack",
    "is_fsdp1_import",
    "is_result_used",
    "is_under_rank0",
    "is_unwrapped",
    "is_where_not_instance",
    "is_where_other_branch_shards",
    "leaves",
    "load_sharded_optimizer",
    "may_be_ddp",
    "model_loaded",
    "model_saved",
    "names_taken",
    "negated",
    "optim_loaded",
    "optim_saved",
    "options",
    "parameter_loops",
    "plan_block",
    "remove_with_item",
    "replace",
    "resharded_before",
    "rule",
    "run_time_choice",
    "same_model",
    "setting_of",
    "shared_by_choice",
    "stands_alone",
    "state_dict_block_around",
    "state_dict_blocks",
    "unwrap_block",
    "unwrapping_loop",
    "uses_orig_params",
    "values_named",
]
