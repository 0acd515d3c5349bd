"""What `rewrite` costs, beside a peer that does the least the task needs, in one run and in CPU seconds.

    python benchmarks/rewrite.py                       start-up, a tree without FSDP, installed packages
    python benchmarks/rewrite.py --repositories DIR    analysis of every repository in DIR against `ast.parse`
    python benchmarks/rewrite.py --only start,two      some of: start, nothing, sample, large, two

torchfix and bump-pydantic are measured where they are installed, best in an environment of their own because
they want their own LibCST: `python -m venv peers && peers/bin/pip install torchfix bump-pydantic`, then
`--peers peers/bin`. A peer is stopped once it has taken what settles the limit, and that counts as all it
takes; with `--to-the-end` it comes to its end, which takes bump-pydantic an hour.

CPU seconds are user and system time, with those of other processes it starts; of start-up the least of
several runs, peer and tool in turn. Two processes are measured in wall seconds, which mean something on a
machine that does nothing else. Prints a Markdown table; leaves with 1 where a limit is missed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib.util
import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from costs import ENVIRONMENT, Figure, against, cost

TOOL = [sys.executable, "-m", "fsdp_migrate"]
PACKAGES = ("torch", "transformers", "accelerate")
LARGE = ("transformers",)
"""Alone: with accelerate or torch beside it everything leads to everything, and the tree is refused."""
PATIENCE_S = 600
"""CPU seconds that the tool may take on the largest tree before it is stopped."""
BARE = """\
import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def main(path: str) -> None:
    "A bare program."
    {body}


app()
"""
PARSE = (
    "import ast, pathlib, sys; [ast.parse(p.read_bytes()) for p in pathlib.Path(sys.argv[1]).rglob('*.py')]"
)
SCAN = """\
import os, re

    found = re.compile(rb"fsdp|fullysharded|fully_shard", re.IGNORECASE)
    hits = 0
    for folder, _, names in os.walk(path):
        for name in names:
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as stream:
                    hits += found.search(stream.read()) is not None
    print(hits)"""


def start_up(scratch: Path, repeats: int) -> Figure:
    """`--help` and a Typer program that does nothing."""
    program = scratch / "bare.py"
    program.write_text(BARE.format(body="print(path)"))
    peer = [sys.executable, str(program), "--help"]
    return against("`--help` / bare Typer program", peer, [*TOOL, "--help"], scratch, repeats, 1.2)


def nothing_to_do(scratch: Path, repeats: int) -> Figure:
    """A tree without FSDP (the standard library) and a Typer program that reads and searches every file."""
    tree = scratch / "standard_library"
    leave = shutil.ignore_patterns("site-packages", "test", "__pycache__", "*.so", "idlelib", "lib2to3")
    shutil.copytree(sysconfig.get_path("stdlib"), tree, ignore=leave, symlinks=True)
    program = scratch / "scan.py"
    program.write_text(BARE.format(body=SCAN))
    files = sum(1 for _ in tree.rglob("*.py"))
    tool = [*TOOL, "rewrite", "--check", str(tree)]
    what = f"`rewrite --check`, {files} files without FSDP / byte scan"
    return against(what, [sys.executable, str(program), str(tree)], tool, scratch, repeats, 1.5)


@dataclass(frozen=True, slots=True)
class Analysis:
    """What the analysis of one repository costs, in CPU seconds.

    Attributes:
        linked: files that name FSDP, what imports them, and what all of these import.
        read: modules that were parsed before the new texts were made.
        linked_s, read_s: `ast.parse` of either.
        analysis_s: from the list of files to the outcome of every finding.
        texts_s: the new texts.
    """

    linked: int
    read: int
    linked_s: float
    read_s: float
    analysis_s: float
    texts_s: float


def analysis(repository: Path) -> Analysis:
    """Measured in this process."""
    from codemods.analysis.collect import read_project
    from codemods.editing.changes import file_changes
    from codemods.model import Options, Outcome
    from codemods.outcomes import decide
    from codemods.plan import find_all
    from codemods.rule import all_rules
    from codemods.sources import find_files, is_configuration

    gc.disable()  # as the program does
    all_rules()
    files = [path for path in find_files(repository, [repository]) if not is_configuration(path)]
    clock = time.process_time
    started = clock()
    project, _ = read_project(repository, files, Options())
    reported = decide(project, find_all(project))
    analysed = clock()
    read = [module.text.encode() for module in project.modules.values()]
    accepted = [r.finding for r in reported if r.outcome is Outcome.DONE]
    before = clock()
    file_changes(project, reported, accepted, repository)
    written = clock()
    linked = [(repository / path).read_bytes() for path in project.linked if not path.endswith(".ipynb")]
    return Analysis(
        len(linked),
        len(read),
        parsing(linked),
        parsing(read),
        analysed - started,
        written - before,
    )


def parsing(texts: list[bytes]) -> float:
    """CPU seconds of `ast.parse` over some files, the least of three."""
    found = []
    for _ in range(3):
        begun = time.process_time()
        for text in texts:
            with contextlib.suppress(SyntaxError, ValueError):
                ast.parse(text)
        found.append(time.process_time() - begun)
    return min(found)


def repositories(folder: Path) -> list[Figure]:
    """Each repository in a process of its own.

    The limit is on the modules that are linked with FSDP: those that have to be looked at. How many of them
    had to be parsed stands beside it.
    """
    found = []
    for repository in sorted(path for path in folder.iterdir() if path.is_dir()):
        done = subprocess.run(
            [sys.executable, str(Path(__file__)), "--analysis-of", str(repository)],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=True,
        )
        cost_of = Analysis(**json.loads(done.stdout))
        if not cost_of.linked:
            continue
        what = (
            f"analysis of {repository.name}, {cost_of.linked} modules linked with FSDP, "
            f"{cost_of.read} of them parsed (which alone takes {cost_of.read_s:.2f} s; "
            f"new texts: {cost_of.texts_s:.2f} s) / `ast.parse` of the linked"
        )
        ratio = cost_of.analysis_s / max(cost_of.linked_s, 1e-9)
        found.append(Figure(what, f"{cost_of.linked_s:.2f} s", f"{cost_of.analysis_s:.2f} s", ratio, 2.5))
    return found


def installed(scratch: Path, name: str, packages: tuple[str, ...], *, every: int) -> tuple[Path, int]:
    """A tree of every n-th Python file of installed packages, and how many these are."""
    tree, count = scratch / name, 0
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            continue
        source = Path(next(iter(spec.submodule_search_locations)))
        for path in sorted(source.rglob("*.py"))[::every]:
            target = tree / package / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            count += 1
    return tree, count


def sample(scratch: Path, peers: Path | None, *, to_the_end: bool) -> list[Figure]:
    """Every twentieth file of torch, transformers and accelerate, and what other codemods take for it.

    On a quiet machine torchfix took 199 times `ast.parse` and bump-pydantic 1,337 times (measured once).
    50 and 300 times less are 4.0 and 4.5 times `ast.parse`: a limit that stands without them too.
    """
    tree, files = installed(scratch, "sample", PACKAGES, every=20)
    command = [*TOOL, "rewrite", "--check", str(tree)]
    cost(command, scratch)
    tool = cost(command, scratch)
    parse_s = cost([sys.executable, "-c", PARSE, str(tree)], scratch).cpu_s
    what = f"`rewrite --check`, {files} files of torch and transformers"
    ratio = tool.cpu_s / parse_s
    found = [Figure(f"{what} / `ast.parse` of them", f"{parse_s:.2f} s", tool.shown, ratio, 4.0)]
    for name, arguments, times in (
        ("torchfix", ["--select", "TOR001", "-j", "1", "."], 50),
        ("bump-pydantic", ["--diff", "."], 300),  # it takes relative paths only
    ):
        program = shutil.which(name, path=str(peers) if peers else None)
        if program is None:
            print(f"{name} is not installed: not measured", file=sys.stderr)
            continue
        limit_s = 1_000_000 if to_the_end else int(1.2 * times * tool.cpu_s) + 1
        done = cost([program, *arguments], tree, limit_s=limit_s)
        found.append(Figure(f"{what} / {name}", done.shown, tool.shown, tool.cpu_s / done.cpu_s, 1 / times))
    return found


def large(scratch: Path) -> list[Figure]:
    """The installed packages as they are, in one process: memory at the worst moment."""
    tree, files = installed(scratch, "large", LARGE, every=1)
    done = cost([*TOOL, "rewrite", "--check", "--jobs", "1", str(tree)], scratch, limit_s=PATIENCE_S)
    note = "" if done.is_whole else f", stopped after {PATIENCE_S} s"
    what = f"`rewrite --check`, {files} installed files in {done.cpu_s:.0f} s, peak memory in MB{note}"
    megabytes = done.peak_bytes / 1e6
    return [Figure(what, "300", f"{megabytes:.0f}", megabytes / 300, 1.0)]


def two_processes(scratch: Path, repeats: int) -> list[Figure]:
    """The same tree by one process and by two, in wall seconds."""
    tree, files = installed(scratch, "large", LARGE, every=1)
    command = [*TOOL, "rewrite", "--check", str(tree), "--jobs"]
    runs = [[cost([*command, jobs], scratch, limit_s=PATIENCE_S) for jobs in "12"] for _ in range(repeats)]
    one, two = (min(run[i].wall_s for run in runs) for i in (0, 1))
    what = f"`rewrite --check`, {files} files of installed packages, two processes / one"
    return [Figure(what, f"{one:.1f} s", f"{two:.1f} s", two / one, 1 / 1.6)]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repositories", type=Path, help="a folder of checkouts")
    parser.add_argument("--peers", type=Path, help="the folder of the peers' commands; those on PATH if none")
    parser.add_argument("--to-the-end", action="store_true", help="never stop a peer")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="start,nothing,sample,large,two")
    parser.add_argument("--analysis-of", type=Path, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.analysis_of:
        print(json.dumps(asdict(analysis(told.analysis_of.resolve()))))
        return 0
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name).resolve()
        parts = {
            "start": lambda: [start_up(scratch, told.repeats)],
            "nothing": lambda: [nothing_to_do(scratch, told.repeats)],
            "sample": lambda: sample(scratch, told.peers, to_the_end=told.to_the_end),
            "large": lambda: large(scratch),
            "two": lambda: two_processes(scratch, min(told.repeats, 3)),
        }
        figures = [figure for part in told.only.split(",") for figure in parts[part]()]
    if told.repositories:
        figures += repositories(told.repositories.resolve())
    print("| measured | peer | tool | ratio | limit | held |\n|---|---:|---:|---:|---:|---|")
    print("\n".join(figure.row for figure in figures))
    return int(any(figure.ratio > figure.limit for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
