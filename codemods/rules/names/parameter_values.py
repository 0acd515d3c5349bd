"""Code that looks at or changes the parameters of a sharded model one by one.

Source: `torch/distributed/tensor` (a reduction of a DTensor can be partial; mixing with plain tensors
raises)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.counts import count_goes_over_ranks
from codemods.analysis.far_parameters import FarParameters
from codemods.analysis.joined_parameters import joined_parameters
from codemods.analysis.module import last_name
from codemods.analysis.name_tests import body_of, test_of_name, test_of_whole_name
from codemods.analysis.optimizer_classes import own_optimizers, trained
from codemods.analysis.parameter_lists import parameters_of
from codemods.analysis.parameter_names import names_of
from codemods.analysis.parameter_questions import code_of, is_no_rule, is_shape_asked_by
from codemods.analysis.summoned import is_model_summoned, is_summoned
from codemods.editing.local_norms import local_norm_edits
from codemods.ignored_parameters import has_only_shards
from codemods.kept_parameters import holder_of, kept_loops, sent, shapes_by_key
from codemods.optimizer_states import state_reads
from codemods.parts_of_models import model_of
from codemods.rule import (
    Finding,
    Holding,
    Maybe,
    Module,
    No,
    ParameterLoop,
    Place,
    Project,
    Safety,
    finding,
    is_under_rank0,
    parameter_loops,
    rule,
    uses_orig_params,
)

_TOLD = {
    "FM509": (
        "sharded parameters have their whole shape now; FSDP1 showed one-dimensional parts of this rank",
        "check which parameters this rule is meant to match: it matched by flattened shapes before",
    ),
    "FM514": (
        "this reads or writes DTensors: reductions can be this rank's part, plain tensors cannot be mixed in",
        "use `full_tensor()` for whole values or `to_local()` for this rank's, and drop reductions of your "
        "own",
    ),
}
_ASSIGNED = (
    "`.data = ...` leaves the shard of a DTensor as it is: nothing is written, and no error is raised",
    "write in place, `p.data.copy_(...)`; move or cast the whole model by `model.to(...)`",
)


@rule(
    "parameters",
    {
        "FM509": "decisions by the shape or the name of sharded parameters",
        "FM514": "values of sharded parameters or gradients read or written one by one",
        "FM515": "parameters of a sharded model are counted",
    },
)
def parameter_values(project: Project) -> Iterator[Finding]:
    """Loops over `model.parameters()` of a sharded model see other things than before.

    Under FSDP1 the parameters were one-dimensional parts of this rank (with `use_orig_params=False` even
    flat ones); under FSDP2 they are DTensors of the whole shape.

    - FM509: `p.ndim`, `p.shape` give the whole parameter's shape now. Rules such as "weight decay for
      everything with two dimensions" matched nothing before and match now: training changes. Such a rule can
      stand in a function that is given the parameter: `is_muon_candidate(name, p)`. So do rules by name
      (`"bias" in name`) where `use_orig_params=True` is not said: FSDP1's names were those of flat
      parameters then. Where it is said, they began with `_fsdp_wrapped_module.`, and rules by the whole name
      or its beginning (`name == "head.weight"`, `name in names`, `name.startswith("head")`) change.
    - FM514: `p.grad.norm().item()` is this rank's part, `p.numpy()` and `p.data.copy_(plain)` raise,
      `dist.all_reduce(p.grad)` raises, `p.data = ...` changes nothing, without a word. Use
      `full_tensor()` for whole values, `to_local()` for this rank's.
      A norm of one's own, squares of gradients summed in a loop and then over the ranks, is translated: the
      shards of all ranks are the whole gradient, as FSDP1's parts were (not where parameters are ignored).
      So is said of loops over an optimizer's groups, in the project's own optimizers too, of its state,
      `optimizer.state[p]["exp_avg"].norm()`, and of lists:
      `torch.cat([p.grad.flatten() for p in model.parameters()])` gathers every gradient.
    - FM515: `sum(p.numel() for p in model.parameters())` was this rank's share and is the whole model's
      number; a factor of the world size after it, or a sum over ranks, counts twice. A plain count is a
      note, a count that is multiplied or summed needs a person.

    The parameters of a part of a sharded model, `model.backbone.parameters()`, are its parameters too. So
    are those that were kept before, `self.params = list(model.parameters())`, and one that is taken out of a
    dict by its name, `params[name].ndim`; that one of these is sent, `dist.isend(self.params[0], dst)`, is
    FM514 wherever it stands.
    Within `summon_full_params` of the same model parameters are whole before and after: nothing is said."""
    said: list[Finding] = []
    for module in _homes(project):
        said += [*_of_mapped(project, module), *_of_loops(project, module), *_of_kept(project, module)]
        told = [one.place.span for one in said if one.code == "FM514" and one.place.path == module.path]
        for node in state_reads(project, module):
            if not any(module.span(module.statement(node)).holds(span) for span in told):
                said.append(_finding(project, module, node, "FM514"))
    yield from said
    values = [one.place for one in said if one.code == "FM514"]
    for module, call in sent(project):
        span = module.span(call)
        is_said = any(place.path == module.path and span.holds(place.span) for place in values)
        if not is_said and not is_summoned(module, call):
            yield _finding(project, module, call, "FM514")
    yield from _of_lists(project, values)


def _homes(project: Project) -> list[Module]:
    """The modules to look through: those of the project's own optimizers are led to by no model."""
    return list(dict.fromkeys((*project.looked_at, *(home for home, _ in own_optimizers(project).values()))))


def _of_loops(project: Project, module: Module) -> Iterator[Finding]:
    told: set[ast.stmt] = set()
    for loop in parameter_loops(project, module):
        model, holding = model_of(project, module, loop.owner)
        is_model = not isinstance(holding, No)
        holding = holding if is_model else trained(project, module, model)
        if isinstance(holding, No) or is_model_summoned(module, loop.node, model):
            continue
        yield from _of_loop(project, module, loop, holding, is_of_optimizer=not is_model)
        test = _test_of_name(project, module, loop, model) if is_model else None
        if test is None or module.statement(test[0]) in told:
            continue
        told.add(module.statement(test[0]))  # `decay` and `no_decay` of one statement are one rule
        yield finding(
            module,
            test[0],
            "FM509",
            f"sharded parameters have their own names now; {test[1]}",
            remedy="check which parameters this rule is meant to match: it saw other names before",
            is_note=isinstance(holding, Maybe),
        )


def _of_kept(project: Project, module: Module) -> Iterator[Finding]:
    """The same for parameters that were kept before, in an attribute or for another function."""
    for loop, holding in kept_loops(project, module):
        if not is_summoned(module, loop.owner):
            yield from _of_loop(project, module, loop, holding, is_of_optimizer=False, may_edit=False)
    for node in shapes_by_key(project, module):
        if not is_summoned(module, node) and not is_no_rule(module, node):
            yield _finding(project, module, node, "FM509")


def _test_of_name(
    project: Project, module: Module, loop: ParameterLoop, model: ast.expr
) -> tuple[ast.expr, str] | None:
    """A condition in a loop that other names meet than before, and what they were."""
    if not uses_orig_params(project, module, model):
        test = test_of_name(module, loop)
        names = "without `use_orig_params=True` FSDP1 showed `..._flat_param`, one for each unit"
    elif isinstance(loop.owner, ast.Attribute) and loop.owner.attr == "module":
        return None
    else:
        test = test_of_whole_name(module, loop)
        names = "FSDP1 put `_fsdp_wrapped_module.` before every name, and before those of each unit"
    return (test, names) if test is not None else None


def _of_mapped(project: Project, module: Module) -> Iterator[Finding]:
    for function, owner in _mapped(module):
        model, holding = model_of(project, module, owner)
        if isinstance(holding, No):
            continue
        if is_model_summoned(module, function, model):
            continue
        names = {argument.arg for argument in function.args.args}
        codes = {code: node for node in ast.walk(function.body) if (code := code_of(node, names))}
        for code, node in codes.items():
            yield _finding(project, module, node, code)


def _of_lists(project: Project, said: list[Place]) -> Iterator[Finding]:
    """torch's functions over lists of parameters or gradients, made here or a few lines before.

    Args:
        said: places where values are read one by one: a list of such numbers is no second thing.
    """
    told: set[ast.Call] = set()
    for module, call, owner in joined_parameters(project):
        span = module.span(module.statement(call))
        if call in told or any(p.path == module.path and span.holds(p.span) for p in said):
            continue
        model, holding = model_of(project, module, owner)
        if isinstance(holding, No) and isinstance(trained(project, module, owner), No):
            continue
        if not is_model_summoned(module, call, model):
            told.add(call)
            yield _finding(project, module, call, "FM514")


def _mapped(module: Module) -> Iterator[tuple[ast.Lambda, ast.expr]]:
    """The function and the model of `map(lambda p: ..., model.parameters())`, and of `filter`."""
    for call in module.calls():
        if isinstance(call.func, ast.Name) and call.func.id in ("map", "filter") and len(call.args) == 2:
            model = parameters_of(call.args[1])
            if isinstance(call.args[0], ast.Lambda) and model is not None:
                yield call.args[0], model


def _of_loop(
    project: Project,
    module: Module,
    loop: ParameterLoop,
    holding: Holding,
    *,
    is_of_optimizer: bool,
    may_edit: bool = True,
) -> Iterator[Finding]:
    names, computed = names_of(module, loop, with_state=is_of_optimizer)
    seen = set()
    # What an optimizer puts into its parameters is made of them, or of their gradients.
    body = [n for n in body_of(module, loop) if not (is_of_optimizer and _is_copy(n))]
    read = [node for node in body if code_of(node, names, computed) == "FM514"]
    if any(isinstance(n, ast.Name | ast.Attribute) and last_name(n) == "DTensor" for n in body):
        seen.add("FM514")  # it tells DTensors from plain tensors
    may_edit = may_edit and bool(read) and has_only_shards(project, holding)
    edits = local_norm_edits(project, module, loop, dict.fromkeys(read)) if may_edit else []
    for node in body:
        code = code_of(node, names, computed)
        if code is None and is_shape_asked_by(project, module, node, names):
            code = "FM509"
        if (
            code is None
            or code in seen
            or (code == "FM514" and _is_of_parameters(project, module, loop, node))
            or (code == "FM509" and is_no_rule(module, node))
        ):
            continue
        seen.add(code)
        if code == "FM514" and edits:
            yield finding(
                module,
                node,
                code,
                "squares of this rank's shards are summed, as before, and then over the ranks",
                safety=Safety.SAFE,
                edits=list(dict.fromkeys(edits)),
            )
        else:
            yield _finding(project, module, node, code)


def _is_copy(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "copy_"


def _is_of_parameters(project: Project, module: Module, loop: ParameterLoop, node: ast.AST) -> bool:
    """Whether `average.copy_(...)` is given parameters of sharded models only, or what was made of them and
    kept (`self.shadow[name]`): DTensors of one layout."""
    call = module.parent(node)
    if not isinstance(node, ast.Attribute) or node.attr != "copy_" or not isinstance(call, ast.Call):
        return False
    given = call.args[0] if call.args else None
    if isinstance(given, ast.Subscript):
        kept = FarParameters(project.links).element(module, given)
        return not isinstance(holder_of(project, kept), No)
    tensors = {
        name
        for other in parameter_loops(project, module)
        if other.node is loop.node and not isinstance(project.sharded(module, other.owner), No)
        for name in other.parameters
    }
    used = {n.id for a in call.args for n in ast.walk(a) if isinstance(n, ast.Name)}
    return bool(used & tensors) and not any(_is_tensor_like(module, loop, n) for n in used - tensors)


def _is_tensor_like(module: Module, loop: ParameterLoop, name: str) -> bool:
    """Whether another name of the loop can be a plain tensor: not a module, nor a number by its name."""
    known = module.scope_of(loop.owner).lookup(name)
    is_import = known is not None and any(isinstance(b.node, ast.Import) for b in known[1])
    return not is_import and not any(word in name.lower() for word in ("decay", "beta", "alpha", "tau"))


def _finding(project: Project, module: Module, node: ast.AST, code: str) -> Finding:
    if code in _TOLD:
        is_assigned = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        message, remedy = _ASSIGNED if is_assigned else _TOLD[code]
        if code == "FM514" and not is_assigned and is_under_rank0(module, node):
            remedy += "; `full_tensor()` takes every rank, and only one comes here"
        return finding(module, node, code, message, remedy=remedy)
    message = "`numel()` of a sharded parameter is the whole parameter's now; FSDP1 gave this rank's share"
    if count_goes_over_ranks(project, module, node):
        remedy = "drop the factor for the number of ranks, or the sum over them"
        return finding(module, node, code, message, remedy=remedy)
    return finding(module, node, code, message, is_note=True)
