"""`auto_wrap_policy`. Source: `torch.distributed.fsdp.wrap`, `._wrap_utils._auto_wrap`."""

from __future__ import annotations

import ast

from codemods.analysis.module import Module
from codemods.custom_policies import as_condition, dropped_policies, says_yes_or_no, serves_only
from codemods.rule import (
    CallValue,
    Code,
    Literal,
    Sequenced,
    Value,
    code,
)
from codemods.shard_call import (
    ONCE,
    Argument,
    Inline,
    Translation,
    UnitTest,
    keyword,
    local_assignment,
    written_at,
)
from codemods.unit_settings import own_settings

_WRAP = "torch.distributed.fsdp.wrap."


@keyword("auto_wrap_policy", {"FM111": "`CustomPolicy` becomes a condition"})
def auto_wrap_policy(argument: Argument) -> Translation:
    """`auto_wrap_policy` becomes a loop over the submodules, children before parents, that shards each unit.

    By class (`ModuleWrapPolicy`, `transformer_auto_wrap_policy`) and by condition (`lambda_auto_wrap_policy`,
    `_or_policy` of these): the loop is written at the call where the classes or the condition can be read
    there. By size, by a function of the project, or chosen at run time: the helper module asks the policy as
    FSDP1 asked it, with the number of parameters that are in no unit yet, and so finds the same units.
    Policies keep their names and arguments; only their import changes. So does a `CustomPolicy` whose
    function gives single units a strategy of another time to reshard, a precision or CPU offload of their own
    (FULL_SHARD, SHARD_GRAD_OP; no precision for buffers): each unit gets what it says of it.
    """
    if isinstance(argument.value, Literal) and argument.value.value is None:
        return Translation(inline=Inline(), keep=False)
    assignment = local_assignment(argument.module, argument.node)
    if isinstance(argument.value, CallValue) and argument.value.function.name == f"{_WRAP}CustomPolicy":
        return _custom(argument)
    visible = argument.at_call and (not isinstance(argument.node, ast.Name) or assignment is not None)
    test = _unit_test(argument, argument.value) if visible else None
    if test is None:
        return Translation(inline=None)
    return Translation(inline=Inline(units=test, consumed=(assignment,) if assignment else ()))


def _custom(argument: Argument) -> Translation:
    """A function that only says yes or no is a condition; the helper module asks one that gives settings."""
    assert isinstance(argument.value, CallValue)
    value = argument.value
    module, call = value.origin.module, value.origin.node
    function = value.arguments[0] if value.arguments else value.keywords.get("lambda_fn")
    if function is None or not says_yes_or_no(argument.project, module, function):
        moved = own_settings(argument, module, call, function) if function is not None else ()
        if moved:
            return Translation(inline=None, findings=moved)
        why = "`CustomPolicy` may give single units settings of their own, or remember what it was asked"
        remedy = "loop over the submodules by hand: fully_shard(unit, ...) with each unit's own arguments"
        return Translation(inline=None, refused=why, remedy=remedy)
    assignment = local_assignment(argument.module, argument.node)
    visible = argument.at_call and (not isinstance(argument.node, ast.Name) or assignment is not None)
    is_made = isinstance(function, ast.Call)  # once, not for each module
    test = _condition(argument, module, function) if visible and not is_made else None
    if test is not None:
        return Translation(inline=Inline(units=test, consumed=(assignment,) if assignment else ()))
    condition = as_condition(module, call, function, "FM111")
    return Translation(inline=None, findings=(condition,))


def _unit_test(argument: Argument, value: Value) -> UnitTest | None:
    if not isinstance(value, CallValue) or value.spreads:
        return None
    module = value.origin.module
    if value.function.name == f"{_WRAP}ModuleWrapPolicy":
        classes = value.arguments[0] if value.arguments else value.keywords.get("module_classes")
        return _by_class(argument, module, classes)
    if value.function.name != "functools.partial" or len(value.arguments) != 1:
        return None
    policy = argument.project.resolve(module, value.arguments[0])
    match policy.name.removeprefix(_WRAP) if policy else "":
        case "transformer_auto_wrap_policy":
            return _by_class(argument, module, value.keywords.get("transformer_layer_cls"))
        case "_module_wrap_policy":
            return _by_class(argument, module, value.keywords.get("module_classes"))
        case "lambda_auto_wrap_policy":
            return _condition(argument, module, value.keywords.get("lambda_fn"))
        case "_or_policy":
            return _any_of(argument, module, value.keywords.get("policies"))
    return None


def _by_class(argument: Argument, module: Module, classes: ast.expr | None) -> UnitTest | None:
    if classes is None:
        return None
    found = argument.project.evaluate(module, classes)
    if isinstance(found, Sequenced) and isinstance(classes, ast.Set | ast.Tuple | ast.List):
        kept = [written_at(argument.project, argument.site, module, c) for c in classes.elts]
        if any(k is None for k in kept) or any(isinstance(c, ast.Starred) for c in classes.elts):
            return None
        words = " or ".join(ast.unparse(c) for c in classes.elts)
        pieces: list[Code] = [k for k in kept if k is not None]
        joined: Code = sum(((", ", *p) for p in pieces[1:]), pieces[0])
        text: Code = joined if len(pieces) == 1 else ("(", *joined, ")")
    else:
        named = written_at(argument.project, argument.site, module, classes)
        if named is None:
            return None
        words = ast.unparse(classes)
        text = ("tuple(", *named, ")")
    if _is_computed(classes):
        return UnitTest(lambda v: code(None, "isinstance({v}, {c})", v=v, c=ONCE), words, once=text)
    return UnitTest(lambda v: code(None, "isinstance({v}, {c})", v=v, c=text), words)


def _is_computed(classes: ast.expr) -> bool:
    """Whether the classes come from something that a loop over the model should not do again and again:
    `type(model.layers[0])` is another class once that layer is sharded."""
    return any(
        isinstance(node, ast.Call | ast.ListComp | ast.SetComp | ast.GeneratorExp)
        or (isinstance(node, ast.Attribute) and node.attr == "__class__")
        for node in ast.walk(classes)
    )


def _condition(argument: Argument, module: Module, function: ast.expr | None) -> UnitTest | None:
    if isinstance(function, ast.Lambda):
        return _lambda(argument, module, function)
    if function is None:
        return None
    text = written_at(argument.project, argument.site, module, function)
    if text is None:
        return None
    return UnitTest(
        lambda v: code(None, "{f}({v})", f=text, v=v), f"where {ast.unparse(function)}", may_match_root=True
    )


def _lambda(argument: Argument, module: Module, function: ast.Lambda) -> UnitTest | None:
    parameters = function.args.args
    if len(parameters) != 1 or function.args.defaults or module is not argument.site.module:
        return None
    if not module.span(argument.site.node).holds(module.span(function)):
        return None
    name = parameters[0].arg
    if module.scope_of(argument.site.node).lookup(name) is not None:
        return None
    body = code(
        module, "({b})" if isinstance(function.body, ast.BoolOp | ast.IfExp) else "{b}", b=function.body
    )
    return UnitTest(lambda v: body, f"where {ast.unparse(function.body)}", may_match_root=True, variable=name)


def _any_of(argument: Argument, module: Module, policies: ast.expr | None) -> UnitTest | None:
    if not isinstance(policies, ast.List | ast.Tuple | ast.Set):
        return None
    going = dropped_policies(argument.project, module, policies)
    staying = [p for p in policies.elts if p not in going]
    named = [p for p in staying if isinstance(p, ast.Name)]
    consumed = [local_assignment(module, p) for p in named]
    tests = [_unit_test(argument, argument.project.evaluate(module, p)) for p in staying]
    found = [t for t in tests if t is not None]
    if None in consumed or len(found) != len(tests) or any(t.variable for t in found):
        return None
    once = [t.once for t in found if t.once]
    if len(once) > 1:
        return None
    return UnitTest(
        lambda v: sum(((" or ", *t.test(v)) for t in found[1:]), found[0].test(v)),
        " or ".join(t.words for t in found),
        may_match_root=any(t.may_match_root for t in found),
        consumed=(
            *(s for s in consumed if s is not None),
            *(s for policy in going for s in serves_only(module, policy)),
        ),
        once=once[0] if once else (),
    )
