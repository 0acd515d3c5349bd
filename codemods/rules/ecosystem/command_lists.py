"""Command lines in Python: lists given to `subprocess` or `sys.argv`, and texts given to a shell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace as changed

from codemods.configuration.flags import Said, flags_of
from codemods.configuration.named import shared_settings
from codemods.configuration.shell import Command, Style, Word, commands
from codemods.model import Place
from codemods.rule import Edit, Finding, Module, Project, Safety, Span, rule

_FLAG = "--fsdp"
_SHELL_CALLS = frozenset(
    {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "shlex.split"}
)
_RUNS = frozenset(
    {
        "subprocess.run",
        "subprocess.call",
        "subprocess.check_call",
        "subprocess.check_output",
        "subprocess.Popen",
    }
)


@rule(
    "command lists",
    {
        "FM618": "FSDP flags of a command line in Python become FSDP2's",
        "FM619": "FSDP flags of a command line in Python that need a person",
    },
    order=20,
)
def command_lists(project: Project) -> Iterator[Finding]:
    """`["torchrun", "train.py", "--fsdp", "full_shard auto_wrap"]` becomes FSDP2's flags, as in a script.

    The same translation as in launch scripts (`explain "launch flags"`). Lists and tuples are understood
    wherever they are written: given to `subprocess`, assigned to `sys.argv` or added to it, given to
    `parse_args`. A text that `os.system`, `shlex.split` or `shell=True` runs is read as a shell reads it. A
    text of which that is not known, and one made with an f-string, is left to you. A program that gives its
    own parser an argument `--fsdp` means something of its own by it: nothing changes there.
    """
    own = {project.group(module.path) for module in project.looked_at if _defines_flag(module)}
    for module in project.looked_at:
        if _FLAG not in module.text or project.group(module.path) in own:
            continue
        for kind in (ast.List, ast.Tuple):
            for node in module.nodes(kind):
                assert isinstance(node, ast.List | ast.Tuple)
                yield from _said(module, _of_items(module, node))
        for constant in module.nodes(ast.Constant):
            assert isinstance(constant, ast.Constant)
            yield from _of_text(project, module, constant)
        for text in module.nodes(ast.JoinedStr):
            assert isinstance(text, ast.JoinedStr)
            yield from _of_fstring(module, text)


def _defines_flag(module: Module) -> bool:
    """Whether a parser of the project's own takes the flag."""
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("add_argument", "add_option")
        and any(isinstance(a, ast.Constant) and a.value == _FLAG for a in call.args)
        for call in (module.calls() if _FLAG in module.text else ())
    )


def _of_items(module: Module, node: ast.List | ast.Tuple) -> list[Command]:
    """The strings of a list as the words of a command."""
    items = [e for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
    if not any(str(item.value).startswith(_FLAG) for item in items):
        return []
    words = []
    for element in node.elts:
        is_plain = element in items and len(ast.unparse(element).splitlines()) == 1
        text = str(element.value) if is_plain and isinstance(element, ast.Constant) else None
        raw = text if text is not None else module.code(element)
        words.append(Word(module.span(element), text, raw))
    first = next(item for item in items if str(item.value).startswith(_FLAG))
    quote = module.code(first)[:1]
    return [Command(tuple(words), Style.ITEMS, quote if quote in "\"'" else '"', is_python=True)]


def _of_text(project: Project, module: Module, node: ast.Constant) -> Iterator[Finding]:
    """A string that is a command line itself."""
    if not isinstance(node.value, str) or f" {_FLAG}" not in node.value or _is_doc(module, node):
        return
    style = _style(project, module, node)
    code = module.code(node)
    inner = code[1:-1]
    if style is Style.SHELL and code[:1] in "\"'" and code[:3] not in ('"""', "'''") and inner == node.value:
        start = module.span(node).start + 1
        found = [_moved(command, start, code[0]) for command in commands(inner)]
        yield from _said(module, found)
    elif style is not None and _asks(node.value):
        yield _left(module, node)


def _of_fstring(module: Module, node: ast.JoinedStr) -> Iterator[Finding]:
    text = "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)
    if f" {_FLAG}" in text and _asks(text) and not isinstance(module.parent(node), ast.JoinedStr):
        yield _left(module, node)


def _asks(text: str) -> bool:
    """Whether a text holds flags that would be translated."""
    return any(said.edits for command in commands(text) for said in flags_of(text, command))


def _is_doc(module: Module, node: ast.Constant) -> bool:
    """A docstring, a help text or a message: nobody runs it."""
    parent = module.parent(node)
    if isinstance(parent, ast.Expr | ast.JoinedStr | ast.Raise):
        return True
    return isinstance(parent, ast.keyword) and parent.arg in ("help", "description", "epilog", "metadata")


def _style(project: Project, module: Module, node: ast.expr) -> Style | None:
    """How a text is run; None where nothing says that it is."""
    call = module.parent(node)
    if isinstance(call, ast.Call) and node in call.args:
        symbol = project.resolve(module, call.func)
        name = symbol.name if symbol is not None else ""
        if name in _SHELL_CALLS:
            return Style.SHELL
        if name in _RUNS:
            shell = next((k.value for k in call.keywords if k.arg == "shell"), None)
            is_shell = isinstance(shell, ast.Constant) and shell.value is True
            return Style.SHELL if is_shell else Style.UNKNOWN
        return None
    return Style.UNKNOWN if isinstance(call, ast.Assign | ast.AugAssign) else None


def _moved(command: Command, offset: int, quote: str) -> Command:
    words = (Word(Span(w.span.start + offset, w.span.end + offset), w.text, w.raw) for w in command.words)
    return changed(command, words=tuple(words), outer=quote, is_python=True)


def _said(module: Module, found: list[Command]) -> Iterator[Finding]:
    for command in found:
        for said in flags_of(module.text, command):
            yield _finding(module, said)


def _finding(module: Module, said: Said) -> Finding:
    code = {"FM614": "FM618", "FM613": "FM613"}.get(said.code, "FM619")
    line = module.line_of(said.span.start)
    place = Place(module.path, line, said.span.start - module.line_start(said.span.start) + 1, said.span)
    return Finding(
        code,
        place,
        said.message,
        said.remedy,
        Safety.SAFE if said.edits else Safety.MANUAL,
        tuple(Edit(module.path, span, (text,)) for span, text in said.edits),
        is_note=said.is_note,
        shares=shared_settings(module.path, said.settings.text, said.settings.raw, module.text)
        if said.settings is not None and not said.is_note
        else frozenset(),
    )


def _left(module: Module, node: ast.expr) -> Finding:
    return Finding(
        "FM619",
        module.place(node),
        "a command line with FSDP1's flags in a text of which it is not known how it is run",
        "use `--fsdp --fsdp_config '{\"version\": 2, ...}'`: `explain fsdp` says what to put there",
    )
