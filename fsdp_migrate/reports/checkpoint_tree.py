"""`inspect-ckpt --tree`: a checkpoint by the dots of its names, alike numbered branches shown once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.model import Contents, TensorSource, Value, size_bytes
from checkpoint_convert.values import is_tensor
from fsdp_migrate.reports.conversion import Write, human_bytes
from fsdp_migrate.reports.inspection import describe_value


@dataclass(slots=True)
class Node:
    """A name, what stands under it, and all below.

    Attributes:
        text: dtype and shape of a tensor, or a value in a few words; empty for a branch.
        tensors, size_bytes: of the whole branch.
    """

    children: dict[str, Node] = field(default_factory=dict)
    text: str = ""
    tensors: int = 0
    size_bytes: int = 0

    def plant(self, parts: Sequence[str], value: Value) -> None:
        """Put a value at a place below."""
        size = size_bytes(value) if is_tensor(value) else 0
        node = self
        for part in (*parts, None):
            node.tensors += int(is_tensor(value))
            node.size_bytes += size
            if part is not None:
                node = node.children.setdefault(part, Node())
        node.text = _tensor_text(value) if is_tensor(value) else describe_value(value)

    @property
    def form(self) -> object:
        """What makes two branches alike: everything but their names."""
        return (self.text, tuple((name, child.form) for name, child in self.children.items()))


def _tensor_text(source: TensorSource) -> str:
    return f"{source.dtype.torch_name} {' x '.join(map(str, source.shape)) or 'scalar'}"


def tree_of(contents: Contents) -> Node:
    """Model, optimizer state by parameter, groups and extras."""
    root = Node()
    for name, source in contents.model.items():
        root.plant(("model", *name.split(".")), source)
    if contents.optimizer is not None:
        for fqn, state in contents.optimizer.state.items():
            for key, value in state.items():
                root.plant(("optim", "state", *fqn.split("."), key), value)
        for number, group in enumerate(contents.optimizer.groups):
            for key, value in group.options.items():
                root.plant(("optim", "param_groups", str(number), key), value)
    for key, value in contents.extras.items():
        root.plant(("extras", str(key)), value)
    return root


def tree_text(write: Write, contents: Contents, under: str | None, depth: int | None) -> None:
    """Print the tree, or the branch of one name.

    Args:
        under: a name such as `model.layers.3`; None for everything.
        depth: levels below it that are shown; None for all.

    Raises:
        UnsupportedError: there is no such branch.
    """
    node, label = tree_of(contents), "checkpoint"
    for part in under.split(".") if under else ():
        if part not in node.children:
            known = ", ".join(list(node.children)[:8])
            raise UnsupportedError(f"--under {under}: there is no {part!r}", hint=f"There are: {known}.")
        node, label = node.children[part], under or ""
    write(f"{_line(label, node)}\n")
    for line in _lines(node, "", depth):
        write(f"{line}\n")


def _lines(node: Node, indent: str, depth: int | None) -> Iterator[str]:
    if depth == 0:
        return
    groups = list(_alike(node))
    for number, (label, child) in enumerate(groups):
        is_last = number == len(groups) - 1
        yield f"{indent}{'└── ' if is_last else '├── '}{_line(label, child)}"
        deeper = indent + ("    " if is_last else "│   ")
        yield from _lines(child, deeper, None if depth is None else depth - 1)


def _alike(node: Node) -> Iterator[tuple[str, Node]]:
    """The children; runs of numbered ones that are alike as one, such as `0..31`."""
    run: list[tuple[str, Node]] = []
    form: object = None
    for name, child in node.children.items():
        same = name.isdecimal() and child.children and child.form
        if run and (not same or same != form or int(name) != int(run[-1][0]) + 1):
            yield _folded(run)
            run = []
        if same:
            form = same
            run.append((name, child))
        else:
            yield _joined(name, child)
    if run:
        yield _folded(run)


def _folded(run: Sequence[tuple[str, Node]]) -> tuple[str, Node]:
    first, node = run[0]
    if len(run) == 1:
        return _joined(first, node)
    return f"{first}..{run[-1][0]} ({len(run)} alike, each)", node


def _joined(label: str, node: Node) -> tuple[str, Node]:
    """A branch that does not branch is one line."""
    while len(node.children) == 1 and not node.text:
        ((name, node),) = node.children.items()
        label = f"{label}.{name}"
    return label, node


def _line(label: str, node: Node) -> str:
    if not node.children:
        size = f", {human_bytes(node.size_bytes)}" if node.tensors else ""
        return f"{label}: {node.text}{size}"
    count = f"{node.tensors:,} tensor{'s' if node.tensors != 1 else ''}, {human_bytes(node.size_bytes)}"
    if node.text:  # a quantized weight and its scales, say
        return f"{label}: {node.text}; with what is below {count}"
    return f"{label}: {count}" if node.tensors else label
