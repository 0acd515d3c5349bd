"""FSDP1's classes named in text, for a program to import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from codemods.configuration.nested import all_commands
from codemods.configuration.rule import Surroundings, config_rule, found_at
from codemods.configuration.tree import ConfigFile, Items, Mapping, Node, Scalar
from codemods.model import Finding, Span
from codemods.rule import FSDP, Module, Project, finding, is_annotation, rule
from codemods.shared_types import WRAP_TYPES, any_shared_type, shared_type
from codemods.written_names import fsdp1_name_in, fsdp1_names_within, remedy_for

_PATCHED = rb"[\"'](?:\w+\.)*(?:FSDP|FullyShardedDataParallel)(?:\.\w+)*[\"']"
_IN_FILE = re.compile(r"((?:(?!torch\.)\w+\.)*(?:FSDP|FullyShardedDataParallel))(?:\.\w+)*")
"""FSDP1's class as a name of some file."""
_PATCHING = re.compile(r"\bpatch(?:\.object)?$|\bsetattr$")
_REFERENCES = frozenset({"nitpick_ignore", "nitpick_ignore_regex"})


@config_rule("names in configuration", {"FM641": "a configuration names something of FSDP1's to be imported"})
def written_targets(file: ConfigFile, around: Surroundings) -> Iterator[Finding]:
    """`_target_: torch.distributed.fsdp.FullyShardedDataParallel` is left to a person.

    Hydra, Lightning's command line and others import what a configuration names (`_target_`, `_component_`,
    `class_path`, an override in a script). What stands beside it are arguments of FSDP1's class, and the
    model comes from the program. `MixedPrecision` and `ShardingStrategy` made that way are torch's: wrap
    calls in the code that take such values from elsewhere stay as they are, and so do the places in the code
    that make them.
    """
    if file.kind in ("shell", "docker"):
        is_docker = file.kind == "docker"
        may_name = "torch.distributed.fsdp." in file.text or (is_docker and "\\u" in file.text)
        for command in all_commands(file.text, is_docker=is_docker) if may_name else ():
            for word in command.words:
                for offset, written in fsdp1_names_within(word.raw):
                    yield _found(file, word.span.start + offset, written)
        return
    for root in file.roots:
        for scalar in _scalars(root):
            name = scalar.value
            if isinstance(name, str) and fsdp1_name_in(name) is not None:
                yield _found(file, file.text.find(name, scalar.span.start), name)


@rule(
    "names in text",
    {"FM642": "a text names something of FSDP1's to be imported"},
    order=90,
    where={b"FSDP": _PATCHED, b"FullyShardedDataParallel": _PATCHED},
)
def written_texts(project: Project) -> Iterator[Finding]:
    """`{"_target_": "torch.distributed.fsdp.FullyShardedDataParallel"}` is left to a person, as in a
    configuration file.

    The same goes for a name that a mock patches, or that is given to a function that imports it; also for
    FSDP1's class by the name that a file of the project has for it, `patch("trainer.wrap.FSDP")`: that file
    has it no more once its wraps are translated. A text that says more than the name is not looked at, nor
    are references that Sphinx is told not to check (`nitpick_ignore`): nothing imports those.
    """
    for module in project.looked_at:
        for node in module.nodes(ast.Constant) if "torch.distributed.fsdp." in module.text else ():
            assert isinstance(node, ast.Constant)
            name = fsdp1_name_in(node.value) if isinstance(node.value, str) else None
            if name is None or isinstance(module.parent(node), ast.Expr) or is_annotation(module, node):
                continue
            if _is_for_documentation(module, node):
                continue
            head = name.split(".")[0]
            yield finding(
                module,
                node,
                "FM642",
                f"`{name}` of FSDP1 is named for a program to import",
                remedy=remedy_for(name),
                fades=True,
                shares={shared_type(project, module, head)} if head in WRAP_TYPES.values() else set(),
            )
        for node, text in _patched(project, module):
            yield finding(
                module,
                node,
                "FM642",
                f"`{text}` is FSDP1's class in a file of this project, which loses the name with its wraps",
                remedy="patch what stands there now: `fully_shard`, or the helper module's `shard_model`",
            )


def _patched(project: Project, module: Module) -> Iterator[tuple[ast.Constant, str]]:
    """Texts that name FSDP1's class as a name of a file of the project: `patch("trainer.wrap.FSDP")`,
    `patch.object(trainer.wrap, "FSDP")`."""
    can_patch = project.wraps and ("patch" in module.text or "setattr" in module.text)
    for node in module.nodes(ast.Constant) if can_patch else ():
        assert isinstance(node, ast.Constant)
        call = module.parent(node)
        if not isinstance(node.value, str) or not isinstance(call, ast.Call) or node not in call.args[:2]:
            continue
        named = _IN_FILE.fullmatch(node.value)
        if named is None or not _PATCHING.search(ast.unparse(call.func)):
            continue
        if node is call.args[0]:
            symbol = project.index.imported(module, named[1]) if "." in named[1] else None
        else:
            holder = project.resolve(module, call.args[0])
            symbol = project.index.member(holder, named[1]) if holder is not None else None
        if symbol is not None and symbol.name == FSDP:
            yield node, node.value


def _is_for_documentation(module: Module, node: ast.Constant) -> bool:
    """Whether a name stands in what Sphinx's configuration says of references."""
    statement = module.statement(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return any(isinstance(target, ast.Name) and target.id in _REFERENCES for target in targets)


def _found(file: ConfigFile, start: int, written: str) -> Finding:
    name = fsdp1_name_in(written) or written
    found = found_at(
        file,
        Span(start, start + len(written)),
        "FM641",
        f"`{name}` of FSDP1 is named for a program to import",
        remedy=remedy_for(name),
    )
    return replace(found, shares=any_shared_type(name.split(".")[0]))


def _scalars(node: Node) -> Iterator[Scalar]:
    match node:
        case Scalar():
            yield node
        case Items():
            for item in node.items:
                yield from _scalars(item)
        case Mapping():
            for entry in node.entries:
                yield from _scalars(entry.node)
