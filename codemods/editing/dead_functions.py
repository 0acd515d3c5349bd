"""Functions that only made an argument of an FSDP1 call, and that nothing calls once it is rewritten.

Such a function would be all that keeps a part of the helper module alive, and goes with its last call.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from codemods.analysis.module import Module
from codemods.editing.apply import lines_of
from codemods.model import Edit, Ref, Span
from codemods.project import Project


def dead_functions(
    project: Project, edits: dict[str, list[Edit]], texts: dict[str, str]
) -> dict[str, dict[str, Span]]:
    """File -> name and place of functions at its top that nothing needs any more.

    They use a part of the helper module, stood in no file but their own as a word, and now stand nowhere.
    Those with comments stay, as do decorated ones: somebody else may call them.

    Args:
        texts: the changed files as they will be.
    """
    found: dict[str, dict[str, Span]] = {}
    for path, text in texts.items():
        module = project.modules[path]
        if path.endswith(".ipynb"):
            continue
        for function in _candidates(module, edits[path]):
            word = re.compile(rf"\b{re.escape(function.name)}\b")
            others = (m.text for m in project.reading(function.name) if m.path != path)
            was_used = len(word.findall(module.text)) > len(word.findall(module.code(function)))
            new = without_functions(text, {function.name})
            if was_used and not word.search(new) and not any(word.search(other) for other in others):
                found.setdefault(path, {})[function.name] = module.span(function)
    return found


def without_functions(text: str, names: Iterable[str]) -> str:
    """A text without these functions at its top; one that is no Python as it is."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    names = set(names)
    lines = lines_of(text)
    for node in reversed(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            end = node.end_lineno or node.lineno
            while end < len(lines) and not lines[end].strip():
                end += 1
            del lines[node.lineno - 1 : end]
    return "".join(lines)


def _candidates(module: Module, edits: Iterable[Edit]) -> Iterator[ast.FunctionDef]:
    places = [edit.span for edit in edits if any(_is_of_helper(part) for part in edit.code)]
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            span = module.span(node)
            above = module.text[: module.line_start(span.start)].rstrip("\r\n").rpartition("\n")[2]
            text = module.text[span.start : module.line_end(span.end)]
            if any(span.holds(place) for place in places) and "#" not in text + above.strip()[:1]:
                yield node


def _is_of_helper(part: object) -> bool:
    return isinstance(part, Ref) and part.name.startswith("helper.")
