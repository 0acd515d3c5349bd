"""`type(module) is Block` on modules of a sharded model.

Source: `torch/distributed/fsdp/_fully_shard/_fully_shard.py` (a unit's class is replaced by a subclass
`FSDP<Name>`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.arguments import argument_for, is_bound_call
from codemods.analysis.module import last_name
from codemods.analysis.spoken_names import says_no_model
from codemods.plain_tests import is_of_traced_models, is_plain_test
from codemods.rule import FSDP, Finding, Maybe, Module, No, Project, Safety, code, finding, replace, rule

_NO_MODULES = frozenset(
    {"config", "cfg", "generation_config", "args", "hparams", "tokenizer", "dtype", "device", "optimizer"}
    | {"state", "training_state", "forward"}
)
_PREFIX = "FSDP"
"""What the name of a unit's class begins with, before the name of the module's own."""
_WALKS = ("modules", "named_modules", "children", "named_children")
_GIVEN_PARTS = "names given loop variables over modules"
_OTHER_CLASSES: frozenset[object] = frozenset(
    {"DataParallel", "DeepSpeedEngine", "DistributedDataParallel", "Linear4bit", "Linear8bitLt"}
)


@rule("type", {"FM508": "a test for the exact class of a module of a sharded model"})
def exact_class(project: Project) -> Iterator[Finding]:
    """`type(m) is Block` on a module of a sharded model is False now: units have a class of their own.

        if type(module) is Block: ...
        if isinstance(module, Block): ...

    `isinstance` also holds for subclasses, which can include more modules than before; the translation is
    therefore offered with `--unsafe-fixes`. Names of classes are compared without what `fully_shard` puts
    before them:

        if type(module).__name__ == "Block": ...
        if type(module).__name__.removeprefix("FSDP") == "Block": ...

    What is looked up by the class (`HOOKS[type(m)]`) is left to a person. Looked at are the parts of a
    sharded model, and loop variables over its `modules()`, `named_modules()`, `children()`, in the loop and
    in functions that they are given to. Of the sharded model itself nothing is said: FSDP1's wrapper was of
    another class than the model as well."""
    for module in project.looked_at:
        yield from _compared(project, module)
        if "type(" in module.text or "__class__" in module.text:
            yield from _looked_up(project, module)


def _compared(project: Project, module: Module) -> Iterator[Finding]:
    for node in module.nodes(ast.Compare):
        assert isinstance(node, ast.Compare)
        subject, by_name = _subject(node)
        if subject is None or _is_about_wrapper(project, module, node) or _is_other(module, node, subject):
            continue
        if not _is_submodule(project, module, subject) or _failed_before(project, module, subject):
            continue
        negative = isinstance(node.ops[0], ast.IsNot | ast.NotEq)
        edits = []
        if not by_name and isinstance(node.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
            template = ("not " if negative else "") + "isinstance({x}, {c})"
            edits = [replace(module, node, code(module, template, x=subject, c=node.comparators[0]))]
        elif by_name and _are_own_names(node):
            edits = [replace(module, node.left, code(module, '{name}.removeprefix("FSDP")', name=node.left))]
        yield finding(
            module,
            node,
            "FM508",
            "units of an FSDP2 model have a class of their own, so this test of the exact class fails",
            remedy="test with `isinstance`",
            safety=(Safety.SAFE if by_name else Safety.UNSAFE) if edits else Safety.MANUAL,
            edits=edits,
            is_note=not edits and not _is_certain(project, module, subject),
        )


def _are_own_names(question: ast.Compare) -> bool:
    """Whether `__name__` is compared, with names that are none of those that `fully_shard` makes."""
    asked = {n.value for n in ast.walk(question.comparators[0]) if isinstance(n, ast.Constant)}
    is_name = isinstance(question.left, ast.Attribute) and question.left.attr == "__name__"
    return is_name and not any(isinstance(one, str) and one.startswith(_PREFIX) for one in asked)


def _looked_up(project: Project, module: Module) -> Iterator[Finding]:
    for place, subject in _chosen_by_class(module):
        if says_no_model(subject) or is_plain_test(module) or is_of_traced_models(module):
            continue
        if not _is_submodule(project, module, subject) or _failed_before(project, module, subject):
            continue
        yield finding(
            module,
            place,
            "FM508",
            "units of an FSDP2 model have a class of their own, `FSDP<Name>`: what goes by the exact class "
            "does not find them",
            remedy="walk `type(module).__mro__`, or test with `isinstance`",
            is_note=not _is_certain(project, module, subject),
        )


def _chosen_by_class(module: Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is looked up by the exact class, or goes by how its name begins, with the module asked about.

    `HOOKS[type(m)]`, `HOOKS.get(type(m))`, `type(m).__name__.startswith("Block")`.
    """
    for node in (*module.nodes(ast.Subscript), *module.calls()):
        match node:
            case ast.Subscript(slice=key, ctx=ast.Load()):
                asked = _class_asked(key)
            case ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]):
                asked = _class_asked(key)
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=key, attr="__name__"), attr="startswith")
            ):
                asked = _class_asked(key)
            case _:
                continue
        if asked is not None and isinstance(node, ast.expr):
            yield node, asked


def _is_certain(project: Project, module: Module, subject: ast.expr) -> bool:
    """Whether what is asked is always a part of a sharded model, as far as it was found by its values."""
    if project.links.parts_of(module, subject):
        return project.links.is_certain_part(module, subject)
    held: ast.expr = subject
    while isinstance(held, ast.Attribute | ast.Subscript):
        held = held.value
        if isinstance(project.sharded(module, held), Maybe):
            return False
    return True


def _failed_before(project: Project, module: Module, subject: ast.expr) -> bool:
    """Whether what is asked is FSDP1's wrapper itself, which was of another class than any model too."""
    if project.links.parts_of(module, subject) or isinstance(project.sharded(module, subject), No):
        return False
    return not (isinstance(subject, ast.Name) and _is_loop_variable(project, module, subject))


def _is_about_wrapper(project: Project, module: Module, question: ast.Compare) -> bool:
    """Whether FSDP1's own class is asked for: a question of FM501."""
    if any(n.value == "FullyShardedDataParallel" for n in ast.walk(question) if isinstance(n, ast.Constant)):
        return True
    names = (n for n in ast.walk(question.comparators[0]) if isinstance(n, ast.Name | ast.Attribute))
    symbols = (project.resolve(module, name) for name in names)
    return any(symbol is not None and symbol.name == FSDP for symbol in symbols)


def _is_other(module: Module, question: ast.Compare, subject: ast.expr) -> bool:
    """Whether something is asked that no unit is: an optimizer, another wrapper, a quantised layer (FM525);
    or before there are units, or in a test that does not speak of FSDP."""
    words = {n.value for n in ast.walk(question.comparators[0]) if isinstance(n, ast.Constant)}
    asked = question.comparators[0]
    name = last_name(asked)
    if name in _OTHER_CLASSES or (words and words <= _OTHER_CLASSES):
        return True
    function = module.function(question)
    calls = (n for n in ast.walk(function) if isinstance(n, ast.Call)) if function is not None else ()
    if any(ast.unparse(call.func).rpartition(".")[2] == "fully_shard" for call in calls):
        return True  # FSDP2's own policy, which looks at the model before it is sharded
    return says_no_model(subject) or is_plain_test(module) or is_of_traced_models(module)


def _subject(node: ast.Compare) -> tuple[ast.expr | None, bool]:
    """`m` of `type(m) is C`, `m.__class__ == C`, `type(m).__name__ == "C"`; and whether names are
    compared."""
    left = node.left
    by_name = isinstance(left, ast.Attribute) and left.attr in ("__name__", "__qualname__")
    if by_name:
        assert isinstance(left, ast.Attribute)
        left = left.value
    return (_class_asked(left) if len(node.ops) == 1 else None), by_name


def _class_asked(node: ast.expr) -> ast.expr | None:
    """`m` of `type(m)` and `m.__class__`."""
    match node:
        case (
            ast.Call(func=ast.Name(id="type"), args=[subject])
            | ast.Attribute(value=subject, attr="__class__")
        ):
            return subject
    return None


def _is_submodule(project: Project, module: Module, subject: ast.expr) -> bool:
    """Whether an expression is a sharded model, a part of one, or a loop variable over its modules."""
    if isinstance(subject, ast.Attribute) and subject.attr in _NO_MODULES:
        return False
    held: ast.expr = subject
    while isinstance(held, ast.Attribute | ast.Subscript):
        held = held.value
        if not isinstance(project.sharded(module, held), No):
            return not (isinstance(held, ast.Name) and held.id == "self")
    if not isinstance(project.sharded(module, subject), No):
        return True
    if project.links.parts_of(module, subject):
        return True
    if not isinstance(subject, ast.Name):
        return False
    if _is_loop_variable(project, module, subject):
        return True
    function = module.function(subject)
    names = [a.arg for a in function.args.args] if function is not None else []
    if function is None or subject.id not in names or not _is_given_parts(project, module, function):
        return False
    for home, call in project.links.calls_of(module, function):
        bound = is_bound_call(project.index, module, function, home, call)
        given = argument_for(function, subject.id, call, bound=bound)
        if isinstance(given, ast.Name) and _is_loop_variable(project, home, given):
            return True
    return False


def _is_given_parts(
    project: Project, module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> bool:
    """Whether a call that names a function gives it a loop variable over a sharded model's modules.

    Asked first: which calls of a method are calls of this one is a question about every object."""
    known = project.memo.get(_GIVEN_PARTS)
    if not isinstance(known, frozenset):
        known = project.memo[_GIVEN_PARTS] = frozenset(_names_given_parts(project))
    if not known:
        return False
    names = {function.name, *project.links.callers.names(module, function)}
    owner = module.parent(function)
    if function.name == "__init__" and isinstance(owner, ast.ClassDef):
        for heir, home in [(owner, module), *project.links.classes.heirs(owner, module)]:
            names.update(project.links.callers.names(home, heir))
        names.add("cls")
    return not known.isdisjoint(names)


def _names_given_parts(project: Project) -> Iterator[str]:
    """What is called with a name that a loop over a sharded model's modules binds in the same file."""
    for module in project.looked_at:
        bound = {
            target.id
            for word in _WALKS
            for walk in module.called(word)
            if _walks_sharded(project, module, walk)
            for target in _targets(module.parent(walk), walk)
        }
        for used in (one for name in bound for one in module.named(name) if isinstance(one, ast.Name)):
            call = module.parent(used)
            call = module.parent(call) if isinstance(call, ast.keyword) else call
            if isinstance(call, ast.Call) and call.func is not used:
                yield call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _targets(loop: ast.AST | None, walk: ast.expr) -> Iterator[ast.Name]:
    """The names that a loop binds, if it goes over the result of a call."""
    if isinstance(loop, ast.For | ast.comprehension) and loop.iter is walk:
        yield from (node for node in ast.walk(loop.target) if isinstance(node, ast.Name))


def _is_loop_variable(project: Project, module: Module, subject: ast.Name) -> bool:
    for parent in module.ancestors(subject):
        loops = (
            parent.generators
            if isinstance(parent, ast.ListComp | ast.SetComp | ast.GeneratorExp)
            else [parent]
        )
        for loop in loops:
            if not isinstance(loop, ast.For | ast.comprehension):
                continue
            # `named_modules()` gives (name, module).
            target = loop.target.elts[-1] if isinstance(loop.target, ast.Tuple) else loop.target
            if (
                isinstance(target, ast.Name)
                and target.id == subject.id
                and _walks_sharded(project, module, loop.iter)
            ):
                return True
    return False


def _walks_sharded(project: Project, module: Module, node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _WALKS
        and not isinstance(project.sharded(module, node.func.value), No)
    )
