"""How a name from elsewhere is spelled in a file, and which imports that needs."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from codemods.analysis.index import Index
from codemods.analysis.module import Module
from codemods.analysis.scopes import Binding, BindingKind, Scope
from codemods.editing.emptied_blocks import outside_gate
from codemods.model import Span
from codemods.torch_names import (
    PRIVATE_HOME,
    PUBLIC_FROM,
    at_home,
    canonical,
    gives_way,
    is_fsdp_namespace,
)

_MODULES = frozenset(
    {
        "torch",
        "torch.distributed",
        "torch.nn",
        "torch.distributed.checkpoint",
        "copy",
        "contextlib",
        "functools",
        "itertools",
        "dataclasses",
    }
)
_USUAL = {
    "torch.distributed": "dist",
    "torch.nn": "nn",
    "torch.distributed.checkpoint": "dcp",
}
HELPER_IMPORT = "helper.import."
"""Before a name of the helper module: the statement that imports it, for a branch of its own."""


FOR_TYPES = "if TYPE_CHECKING"
"""In the place of a function's name: the branch that only type checkers run."""


@dataclass(frozen=True, slots=True, order=True)
class Needed:
    """An import to add: `from module import name as alias`, or `import module as alias` where name is empty.

    Attributes:
        function: qualified name of the function whose own FSDP import it joins; empty: at the top.
            `FOR_TYPES` where an import for type checkers does.
    """

    module: str
    name: str
    alias: str = ""
    function: str = ""


@dataclass(slots=True)
class Spelling:
    """Decides how names are spelled in one file, and remembers which imports that needs.

    Attributes:
        width: columns a line may have.
        torch: the oldest torch the result must run on.
        helper: what to import the helper module's names from, such as `.fsdp2_sharding`.
        shadowed: imports for functions that import the same in another branch, and so need one of their own.
        superseded: (imported name, local name) of FSDP1 imports whose place a new import takes.
    """

    module: Module
    index: Index
    helper: str
    width: int
    torch: tuple[int, int] = PUBLIC_FROM
    needed: set[Needed] = field(default_factory=set)
    shadowed: set[Needed] = field(default_factory=set)
    superseded: set[tuple[str, str]] = field(default_factory=set)

    def spell(self, name: str, position: int) -> str:
        """The spelling of a dotted name at a text position."""
        if name.startswith(HELPER_IMPORT):
            return f"from {self.helper} import {name.removeprefix(HELPER_IMPORT)}"
        if name.startswith("helper."):
            return self._helper(name.removeprefix("helper."), position)
        name = at_home(name, self.torch)
        bound = self._bound_as(name)
        if bound is not None:
            return bound
        if name in _MODULES:
            return self._import_module(name)
        head, _, last = name.rpartition(".")
        if not is_fsdp_namespace(name) and (through := self._through_parent(name)) is not None:
            return through
        return self._import_from(head, last, position)

    def is_ours(self, module: str) -> bool:
        """Whether a dotted name is a module of the project, or the helper module."""
        return module == self.helper or self.index.locate(module, self.module.path) is not None

    def _helper(self, name: str, position: int) -> str:
        is_taken = name in self._names(position) and not self._goes_away(name, position)
        if is_taken and not self._is_import_of(self.helper, name):
            # The file has a name of its own like that: go through the module.
            head, _, stem = self.helper.rpartition(".")
            if not head and not self.helper.startswith("."):
                self.needed.add(Needed(stem, ""))
            else:
                self.needed.add(Needed(head or ".", stem))
            return f"{stem}.{name}"
        return self._import_from(self.helper, name, position)

    def _bound_as(self, name: str) -> str | None:
        """A top-level binding that means exactly that name."""
        for local, bindings in self.module.scope.bindings.items():
            only_imports = all(b.kind is BindingKind.IMPORT for b in bindings)
            for binding in bindings if only_imports else ():
                if self._means(binding, name) and not is_for_types(self.module, binding.node):
                    return local
        return None

    def _means(self, binding: Binding, name: str) -> bool:
        """Whether an import is of that name, or of another file of the project that hands it on."""
        if canonical(binding.target) == name:
            return True
        if not name.startswith("torch.distributed.fsdp.") or not binding.target.endswith(
            name.rpartition(".")[2]
        ):
            return False
        symbol = self.index.imported(self.module, binding.target)
        return symbol is not None and symbol.module is None and symbol.name == name

    def _through_parent(self, name: str) -> str | None:
        """`torch.nn.utils.x` through an import of `torch` or `torch.nn`; `dist.x`; `functools.x`."""
        head, _, last = name.rpartition(".")
        parent = head
        rest = [last]
        while head:
            bound = self._bound_as(head)
            # A module inside torch.distributed need not be loaded because its parent is.
            is_loaded = head == parent or not head.startswith("torch.distributed")
            if bound is not None and is_loaded and (head == "torch" or head in _MODULES):
                if head == "torch" and name.startswith("torch.distributed."):
                    return None
                return ".".join([bound, *rest])
            head, _, last = head.rpartition(".")
            rest.insert(0, last)
        if name.startswith("torch.nn."):
            return self._import_module("torch.nn") + name.removeprefix("torch.nn")
        return None

    def _import_module(self, name: str) -> str:
        alias = _USUAL.get(name, "")
        if name == "torch.nn":
            torch = self._bound_as("torch")
            if torch:
                return f"{torch}.nn"
            self.needed.add(Needed("torch", "nn"))
            return "nn"
        if alias and any(alias in scope.bindings for scope in self.module.scopes()):
            alias = alias if self._bound_as(name) else f"torch_{alias}"
        self.needed.add(Needed(name, "", alias))
        return alias or name

    def _import_from(self, module: str, name: str, position: int) -> str:
        ours = is_fsdp_namespace(module) or module in (self.helper, PRIVATE_HOME)
        around = self._bound_around(name, position)
        target = f"{module}.{name}"
        if not around and self._is_for_types(position):
            bound = self.module.scope.bindings.get(name, [])
            if not any(canonical(b.target) == target for b in bound):
                self.needed.add(Needed(module, name, "", FOR_TYPES))
            return name
        if any(canonical(b.target) == target and self._is_before(b, position) for b in around):
            return name
        is_same = bool(around) and all(binding.target == target for binding in around)
        function = self._function_with_import(position) if ours or is_same else ""
        if function and is_same:  # in another branch
            self.shadowed.add(Needed(module, name, "", function))
            return name
        local = name
        if around or (name in self._names(position) and not self._is_import_of(module, name)):
            if not around and self._is_gated(module, name):
                return name
            local = name if self._goes_away(name, position) else f"{name}_"
        wanted = Needed(module, name, "" if local == name else local, function)
        self.needed.add(wanted)
        return local

    def _is_for_types(self, position: int) -> bool:
        """Whether what stands at a position is imported for type checkers only."""
        word = re.match(r"[\'\"]?(\w+)", self.module.text[position:])
        scopes = [s for s in self._seen_from(position) if word is not None and word[1] in s.bindings]
        bound = [binding for scope in scopes for binding in scope.bindings[word[1]]] if word else []
        return bool(bound) and all(is_for_types(self.module, b.node) for b in bound)

    def _seen_from(self, position: int) -> list[Scope]:
        """The module's scope and those around a position."""
        return [
            scope
            for scope in self.module.scopes()
            if scope is self.module.scope or self.module.span(scope.node).holds(Span(position, position))
        ]

    def _names(self, position: int) -> set[str]:
        """What is bound where a position sees it; what is bound in other functions hides nothing there."""
        return {name for scope in self._seen_from(position) for name in scope.bindings}

    def _is_import_of(self, module: str, name: str) -> bool:
        return any(n.module == module and n.name == name and not n.alias for n in self.needed)

    def _is_gated(self, module: str, name: str) -> bool:
        """Whether a name is bound in one gate by version at the top and nowhere else, to what is wanted.

        Under a torch that is old enough it is something else, or None: the gate's own matter.
        """
        bound = [b for scope in self.module.scopes() for b in scope.bindings.get(name, [])]
        outer = {next(n for n in (b.node, *self.module.ancestors(b.node)) if self._is_top(n)) for b in bound}
        wanted = f"{module}.{name}"
        return (
            len(outer) == 1
            and isinstance(outer.pop(), ast.If | ast.Try)
            and not any(is_for_types(self.module, b.node) for b in bound)
            and all(b in self.module.scope.bindings.get(name, []) for b in bound)
            and any(b.kind is BindingKind.IMPORT and canonical(b.target) == wanted for b in bound)
            and all(b.kind is not BindingKind.IMPORT or b.target.endswith(f".{name}") for b in bound)
        )

    def _is_top(self, node: ast.AST) -> bool:
        return isinstance(self.module.parent(node), ast.Module)

    def _goes_away(self, name: str, position: int) -> bool:
        """Whether every binding of a name imports it from torch's FSDP, which a new import replaces.

        The project's own files may hand it on.
        """
        bindings = [b for s in self._seen_from(position) for b in s.bindings.get(name, [])]
        if not all(b.kind is BindingKind.IMPORT and self._means_fsdp(b) for b in bindings):
            return False
        self.superseded.update((b.target, name) for b in bindings)
        return True

    def _means_fsdp(self, binding: Binding) -> bool:
        """Whether an import is of torch's FSDP, and not of what FSDP2 has under a name of FSDP1's."""
        symbol = self.index.imported(self.module, binding.target)
        name = symbol.name if symbol is not None else canonical(binding.target)
        return gives_way(name, binding.name)

    def _bound_around(self, name: str, position: int) -> list[Binding]:
        """What binds a name in the functions around a position."""
        scopes = [s for s in self._seen_from(position) if s is not self.module.scope]
        return [binding for scope in scopes for binding in scope.bindings.get(name, [])]

    def _is_before(self, binding: Binding, position: int) -> bool:
        """Whether an import has run wherever a position is reached, and stays."""
        is_import = binding.kind is BindingKind.IMPORT and not self._means_fsdp(binding)
        return is_import and isinstance(binding.node, ast.stmt) and self._is_above(binding.node, position)

    def _function_with_import(self, position: int) -> str:
        """The function around a position whose body imports from torch's FSDP before it, by qualified name.

        An import in a branch of the function counts within that branch, if no other branch has one: other
        places are reached without it.
        """
        for scope in self.module.scopes():
            if not isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            # Its annotations and defaults are read outside it.
            start, end = self.module.span(scope.node.body[0]).start, self.module.span(scope.node).end
            if not start <= position < end:
                continue
            imports = {
                outside_gate(self.module, self.module.statement(b.node))
                for bound in scope.bindings.values()
                for b in bound
                if b.kind is BindingKind.IMPORT and _imports_fsdp(b)
            }
            above = [s for s in imports if self._is_above(s, position)]
            direct = any(self.module.parent(s) is scope.node for s in above)
            one_block = len({self.module.parent(s) for s in imports}) == 1
            if direct or (above and one_block):
                return qualified(self.module, scope.node)
        return ""

    def _is_above(self, statement: ast.stmt, position: int) -> bool:
        """Whether every path to a place goes through a statement: it stands in a block around the place."""
        end = self.module.span(self.module.block(statement)[-1]).end
        return self.module.span(statement).end <= position < end


def _imports_fsdp(binding: Binding) -> bool:
    """Whether an import gets something of torch's FSDP; `import torch.distributed.fsdp` binds `torch`."""
    names = [a.name for a in binding.node.names] if isinstance(binding.node, ast.Import) else []
    return any(is_fsdp_namespace(canonical(name)) for name in (binding.target, *names))


def qualified(module: Module, node: ast.AST) -> str:
    """The dotted name of a function within its module."""
    names = [getattr(n, "name", "") for n in (node, *module.ancestors(node))]
    return ".".join(reversed([n for n in names if n]))


def is_for_types(module: Module, node: ast.AST) -> bool:
    """Whether a place is reached by type checkers only."""
    return any(
        isinstance(parent, ast.If) and "TYPE_CHECKING" in ast.dump(parent.test)
        for parent in module.ancestors(node)
    )
