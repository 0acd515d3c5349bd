"""One wrap call on its way to `fully_shard`: its arguments, and what each keyword's rule makes of them.

A keyword rule is one file in `codemods/rules/kwargs`, named for the keyword:

    @keyword("limit_all_gathers", {"FM150": "`limit_all_gathers` is dropped"})
    def limit_all_gathers(argument: Argument) -> Translation:
        '''Manual page.'''
        return Translation(inline=Inline(), keep=False)

It answers for both roads. `inline`: what the value becomes in code written at the call, None where that
cannot be told from the text. `keep`: the helper module's `shard_model` takes the keyword as it stands, and
decides at run time. Two rules that give the same part of one call are a conflict, and the call is left to a
person.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module
from codemods.analysis.values import Value
from codemods.model import Code, Finding, Hole
from codemods.project import Project
from codemods.registered_rules import Rule, register

SIGNATURE = (
    "module",
    "process_group",
    "sharding_strategy",
    "cpu_offload",
    "auto_wrap_policy",
    "backward_prefetch",
    "mixed_precision",
    "ignored_modules",
    "param_init_fn",
    "device_id",
    "sync_module_states",
    "forward_prefetch",
    "limit_all_gathers",
    "use_orig_params",
    "ignored_states",
    "device_mesh",
)
"""`FullyShardedDataParallel.__init__` of torch 2.6 to 2.13, in order; a test holds it against the installed
torch."""


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """One keyword of one wrap call.

    Attributes:
        module, node: where the value is written: at the call, or in a dict that is unpacked there.
        value: what it comes to.
        at_call: written at the call itself.
        item: the node that names and holds it: an `ast.keyword`, a positional expression, a dict's key,
            a subscript that is assigned to.
    """

    project: Project
    site: WrapCall
    name: str
    module: Module
    node: ast.expr
    value: Value
    at_call: bool
    item: ast.AST

    def kept(self) -> Code | None:
        """The value's text for use at the call; None where its names would mean something else there."""
        return written_at(self.project, self.site, self.module, self.node)


def written_at(project: Project, site: WrapCall, module: Module, node: ast.expr) -> Code | None:
    """An expression's text for use at a wrap call: kept as a hole where it stands there, copied where its
    names mean the same there, None otherwise."""
    span = module.span(node)
    if module is site.module:
        if module.span(site.node).holds(span):
            return (Hole(span),)
        if _same_meaning(module, node, site):
            return (module.code(node),)
    return None


def _same_meaning(module: Module, node: ast.expr, site: WrapCall) -> bool:
    there = module.scope_of(site.node)
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            here = module.scope_of(part).lookup(part.id)
            found = there.lookup(part.id)
            if (here is None) != (found is None) or (here and found and here[0] is not found[0]):
                return False
            if here is not None and here[0].is_function and len(here[1]) > 1:
                return False
        elif isinstance(part, ast.Lambda):
            return False
    return True


@dataclass(frozen=True, slots=True)
class Precision:
    """Keywords of a `MixedPrecisionPolicy`, and whether units and root cast their inputs."""

    dtypes: Mapping[str, Code]
    unit_casts: bool = False
    root_casts: bool = True


ONCE = "made_once__"
"""In a `UnitTest`'s condition: the name of what is made once, before the loop."""


@dataclass(frozen=True, slots=True)
class UnitTest:
    """Which submodules are units.

    Attributes:
        test: from the loop variable's name to a condition.
        words: the same for the report.
        may_match_root: the condition can hold for the root too, which must then be left out.
        variable: the loop variable that the condition already uses, if it does.
        consumed: local assignments that only served the condition.
        once: what the condition's `ONCE` stands for: classes that are computed, from modules whose own class
            changes when they are sharded.
    """

    test: Callable[[str], Code]
    words: str
    may_match_root: bool = False
    variable: str = ""
    consumed: tuple[ast.stmt, ...] = ()
    once: Code = ()


@dataclass(frozen=True, slots=True)
class Inline:
    """What one keyword gives to code written at the call.

    Attributes:
        every: keyword arguments of every `fully_shard` call.
        shared: the same for values that are made once, before the first call, under the keyword's name.
        before, after: statements around the sharding; `{model}` in text stands for the model.
        consumed: local assignments that only served the wrap call.
    """

    every: Mapping[str, Code] = field(default_factory=dict)
    shared: Mapping[str, Code] = field(default_factory=dict)
    units: UnitTest | None = None
    precision: Precision | None = None
    before: tuple[Code, ...] = ()
    after: tuple[Code, ...] = ()
    consumed: tuple[ast.stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Translation:
    """What becomes of one keyword.

    Attributes:
        inline: None: the value decides at run time.
        keep: the helper function takes the keyword; False: it is dropped there too.
        findings: notes, and reasons to leave the call to a person.
        refused: why neither road can be taken; the call is left as it is.
        remedy: what a person does then.
    """

    inline: Inline | None
    keep: bool = True
    findings: tuple[Finding, ...] = ()
    refused: str = ""
    remedy: str = ""


KeywordRule = Callable[[Argument], Translation]
_keyword_rules: dict[str, KeywordRule] = {}


def keyword(name: str, codes: Mapping[str, str]) -> Callable[[KeywordRule], KeywordRule]:
    """Register the rule of one keyword."""

    def decorate(translate: KeywordRule) -> KeywordRule:
        _keyword_rules[name] = translate
        register(Rule(name, dict(codes), None, translate.__doc__ or ""))
        return translate

    return decorate


def keyword_rules() -> Mapping[str, KeywordRule]:
    """Every registered keyword rule."""
    return _keyword_rules


def sibling(argument: Argument, name: str) -> ast.expr | None:
    """Another keyword's value at the same call, where it is written there."""
    for given in argument.site.settings.keywords:
        if given.arg == name:
            return given.value
    position = SIGNATURE.index(name)
    arguments = argument.site.node.args
    return arguments[position] if position < len(arguments) else None


def local_assignment(module: Module, node: ast.expr) -> ast.stmt | None:
    """The assignment `x = <value>` whose only use is this `x`; None where x serves anything else."""
    if not isinstance(node, ast.Name):
        return None
    found = module.scope_of(node).lookup(node.id)
    if found is None or not found[0].is_function or len(found[1]) != 1:
        return None
    uses = [
        use
        for use in module.nodes(ast.Name)
        if isinstance(use, ast.Name)
        and use.id == node.id
        and isinstance(use.ctx, ast.Load)
        and (at := module.scope_of(use).lookup(use.id)) is not None
        and at[0] is found[0]
    ]
    statement = found[1][0].node
    if (
        len(uses) != 1
        or not isinstance(statement, ast.Assign)
        or not isinstance(statement.targets[0], ast.Name)
    ):
        return None
    return statement if len(statement.targets) == 1 else None
