"""What `convert-ckpt` prints: the plan, the report, and that there was nothing to do.

The JSON of a conversion is `checkpoint_convert.report`, the same text as `conversion.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from checkpoint_convert.convert import Conversion, Plan
from checkpoint_convert.items import Items, TensorItem
from checkpoint_convert.model import Contents, Notice
from checkpoint_convert.values import dotted

Write = Callable[[str], object]

_LONG_NOTICE = 600

LOADABLE = "already loadable by FSDP2, nothing to convert"
_REASON = "the source is loadable as it is, and no option asked for another form of it"


def printable(write: Write) -> Write:
    """Writes text with names from a checkpoint: control characters are shown, not sent to a terminal."""

    def escaped(text: str) -> object:
        if text.replace("\n", "").isprintable():  # as nearly all is
            return write(text)
        shown = (char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
        return write("".join(shown))

    return escaped


def human_bytes(size: int) -> str:
    """`1.2 GiB`; exact below 1 KiB."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def loadable_text(sources: Sequence[Path]) -> str:
    """One line for people."""
    names = ", ".join(map(str, sources))
    options = "--to, --layout, --link, --dtype, --only, --shards, --tied, --model-key or --optim-key"
    return f"{names}: {LOADABLE}; nothing was written\n({options} still convert it)"


def loadable_json() -> str:
    """One object for programs."""
    return json.dumps({"version": 1, "status": LOADABLE, "written": False, "reason": _REASON})


def describe_source(contents: Contents) -> str:
    """`sharded, 8 ranks, torch 2.4.1`."""
    parts = [contents.format.value]
    if contents.world_size is not None:
        parts.append(f"{contents.world_size} rank{'s' if contents.world_size != 1 else ''}")
    if contents.saver_torch is not None:
        parts.append(f"torch {contents.saver_torch}")
    return ", ".join(parts)


def plan_text(write: Write, contents: Contents, plan: Plan) -> None:
    """The plan of a conversion: every tensor with the files it goes to, and what the output takes."""
    write(f"plan: {describe_source(contents)} -> {plan.target}\n")
    for line in _amounts(plan.items):
        write(f"  {line}\n")
    files = plan.files
    needed = human_bytes(plan.needed_bytes)
    write(f"  output       {len(files)} files, {plan.layout.chunk_count} chunks, about {needed}\n\n")
    for number, item in enumerate(plan.items.tensors):
        names = ", ".join(_files_of(plan, number))
        write(f"{dotted(item.path)}  {_kind(item)}  {human_bytes(item.size_bytes)}  -> {names}\n")
    for alias in plan.items.shared:
        write(f"{dotted(alias.path)}  = {dotted(alias.of)}\n")
    for leaf in plan.items.objects:
        write(f"{dotted(leaf.path)}  value\n")
    for left in plan.items.left_out:
        write(f"{dotted(left.path)}  not written: {left.reason}\n")
    _write_notices(write, plan.items.notices)


def plan_json(write: Write, contents: Contents, plan: Plan) -> None:
    """The same for programs, one tensor per line."""
    head = {
        "version": 1,
        "source": {
            "format": contents.format.value,
            "world_size": contents.world_size,
            "saver_torch": contents.saver_torch,
        },
        "target": str(plan.target),
        "needed_bytes": plan.needed_bytes,
        "chunks": plan.layout.chunk_count,
        "files": [{"name": file.name, "size_bytes": file.size_bytes} for file in plan.files],
        "shared": {dotted(alias.path): dotted(alias.of) for alias in plan.items.shared},
        "values": [dotted(leaf.path) for leaf in plan.items.objects],
        "left_out": [{"key": dotted(left.path), "reason": left.reason} for left in plan.items.left_out],
        "notices": [{"code": notice.code, "text": notice.text} for notice in plan.items.notices],
    }
    write(json.dumps(head, indent=1).removesuffix("\n}"))
    write(',\n "tensors": [')
    comma = "\n"
    for number, item in enumerate(plan.items.tensors):
        row = {
            "key": dotted(item.path),
            "dtype": item.dtype.torch_name,
            "shape": list(item.source.shape),
            "size_bytes": item.size_bytes,
            "files": _files_of(plan, number),
        }
        write(f"{comma}  {json.dumps(row)}")
        comma = ",\n"
    write("\n ]\n}\n")


def done_text(write: Write, done: Conversion, seconds: float) -> None:
    """The report of a conversion."""
    write(f"{describe_source(done.source)} -> {done.target} ({done.to.value})\n")
    for line in _amounts(done.items):
        write(f"  {line}\n")
    size = sum(file.size_bytes for file in done.files)
    checked = "read back and equal" if done.verified else "not read back"
    rate = human_bytes(int(done.items.read_bytes / max(seconds, 1e-9)))
    files = f"{len(done.files)} file{'s' if len(done.files) != 1 else ''}"
    write(f"  written      {human_bytes(size)} in {files}, {checked}; {seconds:.1f} s, {rate}/s\n")
    if done.against is not None:
        write(f"  against      {done.against} tensors are equal to the reference's\n")
    linked = sum(1 for digests in done.digests.values() if not digests.written)
    if linked:
        write(f"  shared       {linked} tensors stay in the source's files: do not write into those\n")
    write("  digests      of every tensor written in conversion.json\n")
    _write_notices(write, done.notices)


def _amounts(items: Items) -> Iterator[str]:
    roots = (items.model_key, items.optim_key)
    for title, root in zip(("model", "optimizer"), roots, strict=True):
        tensors = [item for item in items.tensors if item.path[0] == root]
        if tensors:
            names = sum(1 for alias in items.shared if alias.path[0] == root)
            tied = f", {names} more name{'s' if names != 1 else ''} tied to them" if names else ""
            yield f"{title:<12} {len(tensors)} tensors, {human_bytes(_total(tensors))}{tied}"
    extras = [item for item in items.tensors if item.path[0] not in roots]
    keys = {str(item.path[0]) for item in extras}
    keys |= {str(leaf.path[0]) for leaf in items.objects if leaf.path[0] not in roots}
    if keys:
        yield f"{'extras':<12} {', '.join(sorted(keys))}"


def _total(tensors: Iterable[TensorItem]) -> int:
    return sum(item.size_bytes for item in tensors)


def _kind(item: TensorItem) -> str:
    shape = "x".join(map(str, item.source.shape)) or "scalar"
    before = "" if item.dtype is item.source.dtype else f"{item.source.dtype.torch_name} -> "
    return f"{before}{item.dtype.torch_name} {shape}"


def _files_of(plan: Plan, number: int) -> list[str]:
    files = plan.files
    return list(dict.fromkeys(files[span.file].name for span in plan.layout.spans(number)))


def _write_notices(write: Write, notices: Sequence[Notice]) -> None:
    if notices:
        write(f"\n{len(notices)} notice{'s' if len(notices) != 1 else ''}\n")
    for notice in notices:
        write(f"  {notice.code}: {shortened(notice.text)}\n")


def shortened(text: str) -> str:
    """A notice for the screen: hundreds of frozen parameters are for `conversion.json`."""
    return text if len(text) <= _LONG_NOTICE else f"{text[:_LONG_NOTICE]} ... (all of it: --format json)"
