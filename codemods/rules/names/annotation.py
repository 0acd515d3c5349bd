"""FSDP1's class in a type annotation."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from codemods.rule import (
    FSDP,
    Edit,
    Finding,
    Module,
    Place,
    Project,
    Safety,
    Span,
    code,
    finding,
    is_annotation,
    replace,
    rule,
)

_TYPE_COMMENT = re.compile(r"#\s*type:\s*(?!ignore)(.+)")
_FSDP_MODULE = "{torch.distributed.fsdp.FSDPModule}"


@rule("annotation", {"FM502": "FSDP1's class in a type annotation"})
def annotation(project: Project) -> Iterator[Finding]:
    """`FSDP` in an annotation becomes `FSDPModule`.

        def save(model: FSDP, path: str) -> None: ...
        def save(model: FSDPModule, path: str) -> None: ...

    Unions and string annotations are rewritten in place; a type comment is left to a person. `FSDPModule` has
    the sharding methods only; a type checker that is to know `model.parameters()` too wants a class that
    inherits from both it and `nn.Module`."""
    for use in project.uses(FSDP):
        if is_annotation(use.module, use.node):
            yield _finding(use.module, use.node, replace(use.module, use.node, code(None, _FSDP_MODULE)))
    for module in project.naming:
        for node in module.nodes(ast.Constant):
            assert isinstance(node, ast.Constant)
            if isinstance(node.value, str) and is_annotation(module, node):
                edit = _in_string(project, module, node, node.value)
                if edit is not None:
                    yield _finding(module, node, edit)
        yield from _type_comments(project, module)


def _type_comments(project: Project, module: Module) -> Iterator[Finding]:
    """Type comments that name FSDP1's class: nothing imports a name for a comment, so a person decides."""
    if not any(_names_class(project, module, said[1]) for said in _TYPE_COMMENT.finditer(module.text)):
        return  # tokens take long to make
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(module.text).readline))
    except (tokenize.TokenError, SyntaxError):
        return
    for token in tokens:
        said = _TYPE_COMMENT.match(token.string) if token.type == tokenize.COMMENT else None
        if said and _names_class(project, module, said[1]):
            line = token.start[0]
            start = module.offset(line, 0) + token.start[1]
            # The TODO belongs above the statement whose line it ends, or else above the function.
            before = [s for s in map(module.span, module.statements()) if module.line_of(s.end) == line]
            span = max(before, default=Span(start, start + len(token.string)))
            yield Finding(
                "FM502",
                Place(module.path, line, token.start[1] + 1, span),
                "this type comment names FSDP1's class",
                remedy="write `FSDPModule` and import it, best as an annotation",
                fades=True,
            )


def _names_class(project: Project, module: Module, told: str) -> bool:
    """Whether a word in a type is FSDP1's class."""
    return any(project.meaning(module, word) == FSDP for word in re.findall(r"[A-Za-z_][\w.]*", told))


def _finding(module: Module, node: ast.AST, edit: Edit) -> Finding:
    message = "a sharded model is an `FSDPModule`"
    return finding(module, node, "FM502", message, safety=Safety.SAFE, edits=[edit])


def _in_string(project: Project, module: Module, node: ast.Constant, text: str) -> Edit | None:
    """The edit of a string annotation that names FSDP1's class."""
    source = module.code(node)
    for word in set(re.findall(r"[A-Za-z_][\w.]*", text)):
        symbol = project.meaning(module, word)
        if symbol == FSDP:
            span = module.span(node)
            found = re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", source)
            if found is not None:
                at = Span(span.start + found.start(), span.start + found.end())
                return Edit(module.path, at, code(None, _FSDP_MODULE))
    return None
