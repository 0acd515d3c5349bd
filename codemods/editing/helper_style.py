"""How a repository writes its code, for the module that is written into it: what its formatter and its
packaging say, and, where they say nothing, what its files agree on."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from codemods.editing.helper_layout import Style
from codemods.editing.layout import DEFAULT

if TYPE_CHECKING:
    from codemods.project import Project

_PACKAGING = ("pyproject.toml", "setup.cfg", "setup.py")
_PYTHON = re.compile(
    r"""(?:requires-python|python_requires|^python)\s*=\s*\{?[^\n"']*["'][^"'\n]*?(?:>=|\^|~=|~|==)\s*(\d+)\.(\d+)""",
    re.MULTILINE,
)
_PYTHON_UNQUOTED = re.compile(r"^python_requires\s*=\s*>=\s*(\d+)\.(\d+)", re.MULTILINE)
_ENOUGH, _SHARE = 20, 0.9


def style_of(project: Project, target: Path) -> Style:
    """The style of the repository a project is a part of."""
    found = project.memo.get("style")
    if not isinstance(found, Style):
        width = project.line_length or DEFAULT
        torch = project.options.target_torch
        found = Style(width, _indent(project), _quote(project), _oldest_python(target), torch)
        project.memo["style"] = found
    return found


def _quote(project: Project) -> str:
    """Single quotes where nearly all strings of the files that were read have them."""
    quotes: Counter[str] = Counter()
    for module in list(project.modules.values()):
        for node in module.nodes(ast.Constant):
            assert isinstance(node, ast.Constant)
            if isinstance(node.value, str):
                start = module.offset(node.lineno, node.col_offset)
                text = module.text[start : start + 3]
                if text[:1] in "\"'" and text not in ('"""', "'''"):
                    quotes[text[:1]] += 1
    total = quotes.total()
    return "'" if total >= _ENOUGH and quotes["'"] >= _SHARE * total else '"'


def _indent(project: Project) -> str:
    """The step that nearly all functions and classes are indented by."""
    steps: Counter[str] = Counter()
    for module in list(project.modules.values()):
        for kind in (ast.FunctionDef, ast.ClassDef):
            for node in module.nodes(kind):
                assert isinstance(node, ast.FunctionDef | ast.ClassDef)
                if module.parent(node) is module.tree:
                    start = module.span(node.body[0]).start
                    steps[module.text[module.line_start(start) : start]] += 1
    for step in ("  ", "\t"):
        if steps.total() >= 3 and steps[step] >= _SHARE * steps.total():
            return step
    return "    "


def _oldest_python(target: Path) -> tuple[int, int]:
    """The oldest Python the packaging allows; 3.10 where it says nothing."""
    for folder in (target, *target.parents):
        for name in _PACKAGING:
            path = folder / name
            try:
                text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
            except OSError:
                continue
            found = _PYTHON.search(text) or _PYTHON_UNQUOTED.search(text)
            if found:
                return int(found.group(1)), int(found.group(2))
        if (folder / ".git").exists():
            break
    return (3, 10)
