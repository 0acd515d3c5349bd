"""From findings to a rewrite: what is applied, what conflicts, what is left to a person. Pure: writes nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from codemods.analysis.collect import read_project
from codemods.analysis.index import Module
from codemods.analysis.library_calls import surroundings
from codemods.configuration.plan import is_configuration, plan_configuration
from codemods.editing import todo
from codemods.editing.apply import apply_edits, compatible, replaces
from codemods.editing.helper_assembly import Needs
from codemods.editing.helpers import HelperHome, helper_homes, helper_source
from codemods.editing.imports import Spelling, settle_imports
from codemods.model import (
    Edit,
    FileChange,
    Finding,
    Options,
    Outcome,
    Place,
    Reported,
    Rewrite,
    Safety,
    Span,
    WrapReport,
)
from codemods.project import Project


def plan_rewrite(
    target: Path, files: list[str], options: Options, *, only: frozenset[str] | None = None
) -> Rewrite:
    """Everything a rewrite of these files comes to.

    Args:
        target: the directory that paths are relative to.
        files: Python files, notebooks and configuration files, relative to it, forward slashes.
        only: the files that may be changed; all if None. The others are read to understand these.
    """
    files, configs = split(files)
    project, skipped = read_project(target, files, options)
    findings = find_all(project)
    ordered = [f for f in findings if options.wants(f.code)]
    if only is not None:
        ordered = [f for f in ordered if f.place.path in only]
    reported, accepted = decide(project, ordered, only)
    changes, broken = _changes(project, reported, accepted, target)
    settings = plan_configuration(target, configs, options, surroundings(project), only=only)
    changes = sorted([*changes, *settings.changes], key=lambda change: change.path)
    skipped.update(settings.skipped)
    broken += settings.reported
    reported += [Reported(_unread(path, why), Outcome.TODO) for path, why in sorted(skipped.items())]
    reported += broken
    reported.sort(key=lambda r: (r.finding.place.path, r.finding.place.line, r.finding.code))
    sites = _wrap_reports(project, reported)
    return Rewrite(
        tuple(changes),
        tuple(reported),
        sites,
        len(files),
        len(project.modules),
        skipped,
        (settings.searched, settings.read),
    )


def split(files: list[str]) -> tuple[list[str], list[str]]:
    """Files that hold Python, and configuration files."""
    return [f for f in files if not is_configuration(f)], [f for f in files if is_configuration(f)]


def find_all(project: Project) -> list[Finding]:
    """What every rule finds, in the rules' order of precedence."""
    from codemods.rule import all_rules

    found: list[Finding] = []
    for rule in all_rules():
        if rule.check is not None:
            found.extend(rule.check(project))
    return found


def decide(
    project: Project, findings: Iterable[Finding], only: frozenset[str] | None = None
) -> tuple[list[Reported], list[Finding]]:
    """Give each finding its outcome; edits that clash with an earlier finding's are not done, and said."""
    ignored = {path: todo.ignores(module) for path, module in project.modules.items()}
    reported: list[Reported] = []
    accepted: list[Finding] = []
    edits: dict[str, list[tuple[Edit, Finding]]] = {}
    for finding in sorted(findings, key=lambda f: f.fades):
        module = project.modules[finding.place.path]
        reason = _ignored_by(module, ignored[finding.place.path], finding)
        if reason is not None:
            reported.append(Reported(finding, Outcome.IGNORED, reason))
            continue
        if finding.fades and _is_gone(finding, edits):
            continue
        if finding.is_note:
            reported.append(Reported(finding, Outcome.NOTE))
        elif finding.safety is Safety.MANUAL:
            reported.append(Reported(finding, Outcome.TODO))
        elif finding.safety is Safety.UNSAFE and not project.options.unsafe_fixes:
            reported.append(Reported(finding, Outcome.TODO, "a fix is offered by --unsafe-fixes"))
        elif (clash := _clash(finding, edits)) is not None:
            detail = f"its edit overlaps that of {clash.code} in line {clash.place.line}"
            reported.append(Reported(finding, Outcome.TODO, detail))
        elif only is not None and any(edit.path not in only for edit in finding.edits):
            others = sorted({edit.path for edit in finding.edits} - only)
            reported.append(
                Reported(finding, Outcome.TODO, f"it also changes {', '.join(others)}: name that too")
            )
        else:
            reported.append(Reported(finding, Outcome.DONE))
            accepted.append(finding)
            for edit in finding.edits:
                edits.setdefault(edit.path, []).append((edit, finding))
    return reported + _old_todos(project, reported, only), accepted


def _ignored_by(module: Module, comments: list[todo.Comment], finding: Finding) -> str | None:
    """The reason of a suppression comment on the finding's lines or on the line before its statement."""
    if not comments:
        return None
    first = finding.place.line
    last = module.line_of(finding.place.span.end)
    for comment in comments:
        above = comment.own_line and comment.line == first - 1
        beside = first <= comment.line <= last
        if (above or beside) and (not comment.codes or finding.code in comment.codes):
            return comment.text or "no reason given"
    return None


def _is_gone(finding: Finding, edits: dict[str, list[tuple[Edit, Finding]]]) -> bool:
    return any(replaces(edit, finding.place.span) for edit, _ in edits.get(finding.place.path, []))


def _clash(finding: Finding, edits: dict[str, list[tuple[Edit, Finding]]]) -> Finding | None:
    for edit in finding.edits:
        for other, owner in edits.get(edit.path, []):
            if not compatible(other, edit):
                return owner
    return None


def _old_todos(project: Project, reported: list[Reported], only: frozenset[str] | None) -> list[Reported]:
    """TODO comments of an earlier run that no finding of this run stands for."""
    standing = {
        (r.finding.place.path, r.finding.code, _statement_line(project, r.finding))
        for r in reported
        if r.outcome in (Outcome.TODO, Outcome.IGNORED)
    }
    found: list[Reported] = []
    for path, module in project.modules.items():
        for comment in todo.todos(module) if only is None or path in only else ():
            code = next(iter(comment.codes))
            if any((path, code, line) in standing for line in _lines_below(module, comment.line)):
                continue
            start = module.offset(comment.line, 0)
            place = Place(path, comment.line, comment.column, Span(start, module.line_end(start)))
            finding = Finding(code, place, "a TODO of an earlier run is not resolved", comment.text)
            found.append(Reported(finding, Outcome.TODO))
    return found


def _statement_line(project: Project, finding: Finding) -> int:
    return project.modules[finding.place.path].line_of(_todo_position(project, finding))


def _lines_below(module: Module, line: int) -> list[int]:
    """The first line of code after a comment line; other comments between do not count."""
    lines = module.text.splitlines()
    number = line
    while number < len(lines) and (not lines[number].strip() or lines[number].lstrip().startswith("#")):
        number += 1
    return [number + 1]


def _todo_position(project: Project, finding: Finding) -> int:
    """Start of the line before which the TODO of a finding belongs."""
    module = project.modules[finding.place.path]
    statement = module.statement_at(finding.place.span)
    start = module.span(statement).start if statement is not None else finding.place.span.start
    return module.line_start(start)


def _changes(
    project: Project, reported: list[Reported], accepted: list[Finding], target: Path
) -> tuple[list[FileChange], list[Reported]]:
    edits: dict[str, list[Edit]] = {}
    for finding in accepted:
        for edit in finding.edits:
            edits.setdefault(edit.path, []).append(edit)
    _add_todos(project, reported, edits)
    homes = helper_homes(project, edits, target)
    texts: dict[str, tuple[str, Spelling]] = {}
    for path, wanted in edits.items():
        module = project.modules[path]
        home = homes.get(path)
        spelling = Spelling(module, project.index, home.import_name(path) if home else "")
        texts[path] = (apply_edits(module.text, wanted, spelling.spell, module.source.newline), spelling)
    changes: list[FileChange] = []
    broken: list[Reported] = []
    exported = _exports(project, {path: text for path, (text, _) in texts.items()})
    used: dict[HelperHome, set[str]] = {}
    needs = {path: set[str]() for path in texts}
    for finding in accepted:
        for edit in finding.edits:
            needs[edit.path] |= finding.needs
    for path, (text, spelling) in sorted(texts.items()):
        source = project.modules[path].source
        try:
            new = settle_imports(
                source,
                project.modules[path],
                text,
                spelling.needed,
                partial(_is_exported, exported, path),
            )
            compile(new, path, "exec", dont_inherit=True, flags=ast.PyCF_ONLY_AST)
            encoded = source.encoded(new)
        except (SyntaxError, UnicodeEncodeError) as error:
            broken.append(_left_alone(project, path, error))
            continue
        if spelling.helper_names:
            used.setdefault(homes[path], set()).update(
                spelling.helper_names, (f"need:{n}" for n in needs[path])
            )
        if encoded != source.data:
            changes.append(FileChange(path, source.data, encoded))
    changes += _helper_changes(project, used, target)
    return changes, broken


def _is_exported(exported: set[tuple[str, str]], path: str, name: str) -> bool:
    return (path, name) in exported


def _helper_changes(project: Project, used: dict[HelperHome, set[str]], target: Path) -> list[FileChange]:
    changes = []
    for home, names in sorted(used.items(), key=lambda item: item[0].path):
        before = (target / home.path).read_bytes() if (target / home.path).exists() else None
        needs = Needs(
            frozenset(n.removeprefix("need:") for n in names if n.startswith("need:") and ":field:" not in n),
            frozenset(n.removeprefix("need:field:") for n in names if n.startswith("need:field:")),
        )
        if "batch_norm" in project.mentions:
            needs = needs.joined(Needs(frozenset(), frozenset({"batch_norm"})))
        text = helper_source({n for n in names if not n.startswith("need:")}, needs, before)
        after = text.encode()
        if after != before:
            changes.append(FileChange(home.path, before, after))
    return changes


def _exports(project: Project, texts: dict[str, str]) -> set[tuple[str, str]]:
    """(file, name) of names that some file, as it will be, imports from another file of the project."""
    found: set[tuple[str, str]] = set()
    for path, module in project.modules.items():
        text = texts.get(path)
        for node in module.nodes(ast.ImportFrom):
            assert isinstance(node, ast.ImportFrom)
            holder = project.index.find("." * node.level + (node.module or ""), path)
            if holder is None or holder is module:
                continue
            for alias in node.names:
                local = alias.asname or alias.name
                if alias.name == "*" or text is None or _still_named(text, local):
                    found.add((holder.path, alias.name))
    return found


def _still_named(text: str, name: str) -> bool:
    """Whether a name is used, or re-exported without a use, in a new text."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return True
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(tree))


def _add_todos(project: Project, reported: list[Reported], edits: dict[str, list[Edit]]) -> None:
    """Comment lines before the statements of findings that need a person."""
    seen: set[tuple[str, int, str]] = set()
    for item in reported:
        finding = item.finding
        if (
            item.outcome is not Outcome.TODO
            or not finding.remedy
            or finding.place.path not in project.modules
        ):
            continue
        module = project.modules[finding.place.path]
        if any(c.line == finding.place.line for c in todo.todos(module) if finding.code in c.codes):
            continue
        position = _todo_position(project, finding)
        if (finding.place.path, position, finding.code) in seen or _has_todo(module, position, finding.code):
            continue
        seen.add((finding.place.path, position, finding.code))
        line = module.text[position : module.line_end(position)]
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        text = f"{indent}{todo.todo_text(finding.code, finding.remedy)}\n"
        edits.setdefault(finding.place.path, []).append(
            Edit(finding.place.path, Span(position, position), (text,))
        )


def _has_todo(module: Module, position: int, code: str) -> bool:
    line = module.line_of(position)
    lines = module.text.splitlines()
    comments = {c.line: c for c in todo.todos(module)}
    above = line - 1
    while above >= 1 and lines[above - 1].lstrip().startswith("#"):
        if above in comments and code in comments[above].codes:
            return True
        above -= 1
    return False


def _unread(path: str, why: str) -> Finding:
    return Finding("FM901", Place(path, 1, 1, Span(0, 0)), f"the file {why}", "")


def _left_alone(project: Project, path: str, error: Exception) -> Reported:
    place = Place(path, 1, 1, Span(0, 0))
    message = f"the file was left as it is: its rewritten form would be no valid Python ({error})"
    return Reported(Finding("FM903", place, message, ""), Outcome.TODO)


def _wrap_reports(project: Project, reported: list[Reported]) -> tuple[WrapReport, ...]:
    found = []
    for item in reported:
        if item.finding.code in ("FM101", "FM102"):
            form = "inline" if item.finding.code == "FM101" else "helper"
            form = form if item.outcome is Outcome.DONE else "left"
            found.append(
                WrapReport(item.finding.place.path, item.finding.place.line, form, item.finding.detail)
            )
    done = {(r.path, r.line) for r in found}
    for site in project.wraps:
        place = site.module.place(site.node)
        if (place.path, place.line) not in done:
            found.append(WrapReport(place.path, place.line, "left", ""))
    return tuple(found)
