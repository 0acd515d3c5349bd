"""Copies of a sharded model.

Source: `torch/distributed/fsdp/_fully_shard/_fully_shard.py` (`_unimplemented_deepcopy`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Finding, Maybe, Module, No, Project, finding, rule

_COPIES = ("copy.deepcopy", "torch.optim.swa_utils.AveragedModel")
_PICKLES = ("torch.save", "torch.serialization.save", "pickle.dump", "pickle.dumps")
_COPY_BEFORE = "copy the model before it is sharded, and shard the copy as well"
_SAVE_STATE = (
    "save `get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))`, "
    "called on every rank"
)


@rule("deepcopy", {"FM510": "a sharded model is copied or pickled"})
def deepcopy(project: Project) -> Iterator[Finding]:
    """`copy.deepcopy(model)` and `AveragedModel(model)` fail on a sharded model, under FSDP1 and FSDP2 alike.

    Copy the model before it is sharded and shard the copy too; an average of weights is then
    `torch._foreach_lerp_` over the two models' parameters. `torch.save(model)` fails as well, under both:
    save a state dict. Where something is pickled that is a sharded model only on some paths, nothing is said:
    a program that works goes there with other objects; nor of a copy whose failure is caught.
    """
    for name in (*_COPIES, *_PICKLES):
        for module, call in project.calls_of(name):
            if not call.args:
                continue
            is_copied = name in _COPIES
            holding = project.sharded(module, call.args[0])
            if isinstance(holding, No) or (isinstance(holding, Maybe) and not is_copied):
                continue
            if isinstance(holding, Maybe) and _is_caught(module, call):
                continue
            yield finding(
                module,
                call,
                "FM510",
                f"a model sharded by FSDP2 cannot be {'copied' if is_copied else 'pickled'}",
                remedy=_COPY_BEFORE if is_copied else _SAVE_STATE,
                is_note=isinstance(holding, Maybe),
            )


def _is_caught(module: Module, call: ast.Call) -> bool:
    """Whether a `try` around a call in its function goes on with something else where it fails."""
    child: ast.AST = call
    for parent in module.ancestors(call):
        if isinstance(parent, ast.Try) and any(child is part for part in parent.body) and parent.handlers:
            return True
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        child = parent
    return False
