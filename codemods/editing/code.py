"""New code as data: templates with kept pieces of the original, and the edits that rules make of them."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Collection, Iterable

from codemods.analysis.module import Module
from codemods.model import Code, Edit, Finding, Hole, Part, Ref, Safety, Span

_ATOMS = (
    ast.Name,
    ast.Attribute,
    ast.Call,
    ast.Subscript,
    ast.Constant,
    ast.List,
    ast.Dict,
    ast.Set,
    ast.JoinedStr,
)
_TIGHT = re.compile(r"\s*(\.(?!\.)|\(|\[)")


def code(module: Module | None, template: str, **parts: ast.AST | str | Code) -> Code:
    """Fill a template.

    Args:
        module: the file the nodes come from; None where no node is given.
        template: text with `{name}` for a part, `{dotted.name}` for a name from elsewhere (`{helper.x}`: of
            the helper module), `{{` and `}}` for braces.
        parts: nodes are kept as they stand, edits inside them included, in parentheses where the template
            goes on with a dot, call or index that the node would not hold together.
    """
    found: list[Part] = []
    pieces = list(string.Formatter().parse(template))
    for position, (literal, name, _, _) in enumerate(pieces):
        if literal and found and isinstance(found[-1], str):
            found[-1] += literal  # the parser cuts text at `{{` and `}}`
        elif literal:
            found.append(literal)
        if name is None:
            continue
        if name not in parts:
            if "." not in name and name != "torch":
                raise KeyError(f"template names {{{name}}}, which was not given")
            found.append(Ref(name))
            continue
        part = parts[name]
        following = pieces[position + 1][0] if position + 1 < len(pieces) else ""
        found.extend(_part(module, part, tight=bool(_TIGHT.match(following))))
    return tuple(found)


def _part(module: Module | None, part: ast.AST | str | Code, *, tight: bool) -> Code:
    if isinstance(part, str):
        return (part,)
    if isinstance(part, tuple):
        return part
    assert module is not None, "a node needs its module"
    hole = Hole(module.span(part))
    if isinstance(part, ast.Starred | ast.keyword | ast.stmt):
        return (hole,)
    if (tight and not isinstance(part, _ATOMS)) or isinstance(part, ast.NamedExpr | ast.Yield):
        return ("(", hole, ")")
    if isinstance(part, ast.GeneratorExp) and module.text[hole.span.start] != "(":
        return ("(", hole, ")")
    return (hole,)


def join(pieces: Iterable[Code], separator: str) -> Code:
    """Codes with text between them."""
    joined: list[Part] = []
    for position, piece in enumerate(pieces):
        if position:
            joined.append(separator)
        joined.extend(piece)
    return tuple(joined)


def finding(
    module: Module,
    node: ast.AST,
    fm: str,
    message: str,
    *,
    remedy: str = "",
    safety: Safety = Safety.MANUAL,
    edits: Iterable[Edit] = (),
    is_note: bool = False,
    fades: bool = False,
    needs: Iterable[str] = (),
    detail: str = "",
    shares: Iterable[str] = (),
) -> Finding:
    """A finding at a node; see `codemods.model.Finding`."""
    return Finding(
        fm,
        module.place(node),
        message,
        remedy,
        safety,
        tuple(edits),
        is_note=is_note,
        fades=fades,
        needs=frozenset(needs),
        detail=detail,
        shares=frozenset(shares),
    )


def indentation(module: Module, statement: ast.stmt) -> str:
    """The white space before a statement's line."""
    start = module.line_start(module.span(statement).start)
    text = module.text[start:]
    return text[: len(text) - len(text.lstrip(" \t\f"))]


def starts_line(module: Module, statement: ast.stmt) -> bool:
    """Whether nothing but white space stands before the statement on its line."""
    start = module.span(statement).start
    return not module.text[module.line_start(start) : start].strip()


def ends_line(module: Module, statement: ast.stmt) -> bool:
    """Whether nothing but a comment stands after the statement on its last line."""
    end = module.span(statement).end
    rest = module.text[end : module.line_end(end)].strip()
    return not rest or rest.startswith("#")


def stands_alone(module: Module, statement: ast.stmt) -> bool:
    """Whether a statement has its lines for itself, so that lines can be put before and after it."""
    return starts_line(module, statement) and ends_line(module, statement)


def replace(module: Module, node: ast.AST, new: Code) -> Edit:
    """Replace an expression or statement. Further lines of a statement are indented as its first line."""
    if isinstance(node, ast.stmt):
        new = _indented(new, indentation(module, node))
    return Edit(module.path, module.span(node), new)


def insert_text(module: Module, node: ast.AST, text: str) -> Edit:
    """Put text directly before an expression."""
    start = module.span(node).start
    return Edit(module.path, Span(start, start), (text,))


def insert_before(module: Module, statement: ast.stmt, new: Code) -> Edit:
    """Put lines before the line of a statement, indented like it."""
    start = module.line_start(module.span(statement).start)
    indent = indentation(module, statement)
    return Edit(module.path, Span(start, start), (indent, *_indented(new, indent), "\n"))


def insert_after(module: Module, statement: ast.stmt, new: Code) -> Edit:
    """Put lines after the last line of a statement, indented like it."""
    end = module.line_end(module.span(statement).end)
    indent = indentation(module, statement)
    lead: Code = () if module.text[:end].endswith(("\n", "\r")) else ("\n",)
    return Edit(module.path, Span(end, end), (*lead, indent, *_indented(new, indent), "\n"))


def delete(module: Module, statement: ast.stmt) -> Edit:
    """Remove a statement and its line; `pass` where it was its block's only one, and with it a `try` around
    nothing else that does nothing about errors, or an `if` around nothing else that asks for a setting."""
    parent = module.parent(statement)
    if isinstance(parent, ast.Try) and _guards_only(module, parent, statement):
        return _without_blank_line(module, delete(module, parent))
    if isinstance(parent, ast.If) and _asks_only(module, parent, statement):
        return delete(module, parent)
    if len(module.block(statement)) == 1 and not isinstance(module.parent(statement), ast.Module):
        return Edit(module.path, module.span(statement), ("pass",))
    span = module.span(statement)
    if not stands_alone(module, statement):
        end = span.end
        rest = module.text[end:]
        if rest.lstrip(" \t").startswith(";"):
            end += rest.index(";") + 1
            end += len(module.text[end:]) - len(module.text[end:].lstrip(" \t"))
        return Edit(module.path, Span(span.start, end), ())
    end_of_line = module.line_end(span.end)
    rest = module.text[span.end : end_of_line]
    if rest.strip():  # a comment stays, on a line of its own
        return Edit(module.path, Span(span.start, span.end + len(rest) - len(rest.lstrip(" \t"))), ())
    if isinstance(statement, ast.FunctionDef):  # the blank lines behind a function go with it
        blank = re.match(r"(?:[ \t]*\r?\n)*", module.text[end_of_line:])
        end_of_line += blank.end() if blank else 0
    return Edit(module.path, Span(module.line_start(span.start), end_of_line), ())


def _without_blank_line(module: Module, edit: Edit) -> Edit:
    """The same with the blank line above, where another stands below."""
    start, end = edit.span.start, edit.span.end
    above = module.line_start(start - 1) if start else start
    below = module.text[end : module.line_end(end)]
    is_between = start and not module.text[above:start].strip() and not below.strip()
    return Edit(edit.path, Span(above, end), edit.code) if is_between and not edit.code else edit


def _asks_only(module: Module, gate: ast.If, statement: ast.stmt) -> bool:
    """Whether an `if` has one statement and no other branch, and evaluating its test does nothing:
    `if args.prefetch:`."""
    span, test = module.span(gate), gate.test
    while isinstance(test, ast.UnaryOp | ast.Attribute):
        test = test.operand if isinstance(test, ast.UnaryOp) else test.value
    is_whole = gate.body == [statement] and not gate.orelse and module.text.startswith("if", span.start)
    return is_whole and isinstance(test, ast.Name) and "#" not in module.text[span.start : span.end]


def _guards_only(module: Module, guard: ast.Try, statement: ast.stmt) -> bool:
    """Whether a `try` is there for one statement, whose errors it passes over."""
    handled = [s for handler in guard.handlers for s in handler.body]
    span = module.span(guard)
    return (
        guard.body == [statement]
        and not guard.orelse
        and not guard.finalbody
        and all(isinstance(s, ast.Pass) for s in handled)
        and "#" not in module.text[span.start : span.end]
    )


def unwrap_block(module: Module, block: ast.With | ast.AsyncWith, *, before: Code = ()) -> Edit:
    """Replace a `with` statement by its body, moved to the left, after the lines of `before`."""
    indent = indentation(module, block)
    first = block.body[0]
    header_end = module.span(block.items[-1].context_expr).end
    start = module.line_end(module.text.index(":", _after_header(module, block, header_end)))
    # To the end of the last line, so that an edit that deletes the last statement with its line lies within.
    end = module.line_end(module.span(block).end)
    lead: Code = (indent, *_indented(before, indent), "\n") if before else ()
    if not starts_line(module, first):
        body_start = module.span(first).start
        body: Code = (indent, Hole(Span(body_start, end)))
    else:
        while start < module.span(first).start and not module.text[start : module.line_end(start)].strip():
            start = module.line_end(start)
        shift = len(indent) - len(indentation(module, first))
        body = (Hole(Span(start, end), indent=shift, first_line=True),)
    return Edit(module.path, Span(module.line_start(module.span(block).start), end), (*lead, *body))


def _after_header(module: Module, block: ast.With | ast.AsyncWith, end: int) -> int:
    item = block.items[-1]
    return module.span(item.optional_vars).end if item.optional_vars is not None else end


def append_argument(module: Module, call: ast.Call, text: str, *, going: Collection[ast.AST] = ()) -> Edit:
    """One more argument after the last, on a line of its own where that one has one.

    Args:
        going: arguments that other edits remove.
    """
    staying = [node for node in (*call.args, *call.keywords) if node not in going]
    last = max(staying, key=lambda node: module.span(node).end)
    span = module.span(last)
    end = span.end + _closing(module, call, last)
    start = module.line_start(span.start)
    indent = module.text[start : span.start]
    lead = f",\n{indent}" if not indent.strip() and start > module.span(call).start else ", "
    return Edit(module.path, Span(end, end), (f"{lead}{text}",))


def _closing(module: Module, call: ast.Call, last: ast.AST) -> int:
    """Length of closing parentheses around the last argument that are not the call's own."""
    rest = module.text[module.span(last).end : module.span(call).end - 1]
    closing = re.match(r"(\s*\))+", rest)
    return closing.end() if closing else 0


def _indented(new: Code, indent: str) -> Code:
    return tuple(part.replace("\n", "\n" + indent) if isinstance(part, str) else part for part in new)
