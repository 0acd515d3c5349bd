"""What is said about an FSDP1 name that is left over, and whether it is said already. Pure."""

from __future__ import annotations

import ast

from codemods.analysis.module import Module
from codemods.editing.apply import replaces
from codemods.editing.code import finding
from codemods.model import Edit, Finding
from codemods.torch_names import CONFIG_TYPES, FSDP, POLICIES

CODE = "FM516"
_PREFIX = "torch.distributed.fsdp."
_REMEDIES = {
    "FullyShardedDataParallel": "shard with `fully_shard` in place; a sharded module is an `FSDPModule`",
    "StateDictType": "say at each state dict call what it gives (`StateDictOptions`)",
    "FlatParameter": "there is no flat parameter: work on `model.parameters()`, which are DTensors",
    "enable_wrap": "build the modules first, then shard each with `fully_shard`, the model around them last",
    "wrap": "shard the module with `fully_shard` once it is built",
    "ShardingStrategy": "go by what your configuration says: a sharded model does not remember its strategy; "
    "norms of its DTensors are those of the whole already",
    "CustomPolicy": "loop over `reversed(list(model.modules()))` and shard what the function wants",
    "sharded_grad_scaler": "use `torch.amp.GradScaler`, which finds infinities on every rank",
    "OptimStateKeyType": "optimizer state stays keyed by parameter name",
}
_GIVEN_TO_WRAPS = POLICIES | CONFIG_TYPES
_CHECKPOINTING = "apply_activation_checkpointing"
_PRIVATE_REMEDIES = {
    "_init_intra_and_inter_node_groups": "leave `process_group` out: HYBRID_SHARD without it shards within "
    "each node, over a mesh that the helper module makes",
}


def left_name(module: Module, node: ast.AST, name: str, *, wraps: bool = True) -> Finding:
    """A name that stays.

    Args:
        wraps: something in the project is wrapped with FSDP1; if not, its types and policies serve nothing.
    """
    words = name.removeprefix(_PREFIX).removeprefix("wrap.").split(".")
    short = ".".join(words)
    if any(word.startswith("_") for word in words):
        message = f"`{short}` is private to FSDP1 and has no counterpart"
        remedy = _PRIVATE_REMEDIES.get(words[-1]) or (
            "do without FSDP1's internals: `FSDPModule` has `unshard()` and `reshard()`, "
            "parameters are DTensors"
        )
    elif name.startswith(f"{FSDP}."):
        message = f"`{words[-1]}` is taken from FSDP1's class"
        remedy = f"write it as `model.{words[-1]}(...)`: FSDP1's class is gone after the rewrite"
    else:
        message = f"`{short}` belongs to FSDP1 and is still used here"
        remedy = _REMEDIES.get(words[0], "rewrite this by hand for `fully_shard`")
        if not wraps and words[0] in _GIVEN_TO_WRAPS:
            message = f"`{short}` belongs to FSDP1, and nothing here wraps with FSDP1"
            remedy = "remove it where nothing needs it; elsewhere go by names or classes of your own"
        if words[0] in POLICIES and _CHECKPOINTING in module.text and not wraps:
            message += ": what it chooses is checkpointed, which is the same for models of FSDP2"
            remedy = "give it a `check_fn` of your own before FSDP1 leaves torch"
            return finding(module, node, CODE, message, remedy=remedy, is_note=True)
    return finding(module, node, CODE, message, remedy=remedy)


def is_gone(module: Module, node: ast.AST, edits: dict[str, list[tuple[Edit, Finding]]]) -> bool:
    spans = [module.span(node)]
    while isinstance(node, ast.Attribute):
        node = node.value
        spans.append(module.span(node))
    return any(replaces(edit, span) for edit, _ in edits.get(module.path, []) for span in spans)


def is_spoken_of(module: Module, node: ast.AST, spoken: set[tuple[str, int]]) -> bool:
    return any((module.path, line) in spoken for line in header(module, node))


def header(module: Module, node: ast.AST) -> range:
    """The lines of the innermost statement around a node; of a compound statement those before its body."""
    statement = module.statement(node)
    first = module.line_of(module.span(statement).start)
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body:
        return range(first, max(first, module.line_of(module.span(body[0]).start) - 1) + 1)
    return range(first, module.line_of(module.span(statement).end) + 1)
