"""One `torch.autocast` context around several optimizer steps.

Source: `torch/amp/autocast_mode.py` (`cache_enabled`), measured on torch 2.13.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Edit, Finding, Module, No, Project, Safety, Span, finding, rule

_NAMES = (
    "torch.autocast",
    "torch.amp.autocast",
    "torch.cuda.amp.autocast",
    "torch.amp.autocast_mode.autocast",
)


@rule("autocast", {"FM511": "one autocast context around several optimizer steps"})
def autocast(project: Project) -> Iterator[Finding]:
    """An autocast context that stays open over several steps gets `cache_enabled=False`.

    Autocast keeps the low-precision copy of a weight as long as the context is open. FSDP1 made new views
    of the weights in each forward pass, so the copies were never found again. FSDP2 uses the same parameter
    every time: the second step would compute with the first step's weights. Without the cache the results
    are those of before.

        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            for batch in batches:
                ...
                optimizer.step()
    """
    for module in project.looked_at:
        for block in module.nodes(ast.With):
            assert isinstance(block, ast.With)
            for item in block.items:
                call = item.context_expr
                if not isinstance(call, ast.Call) or not _is_autocast(project, module, call):
                    continue
                if any(k.arg == "cache_enabled" for k in call.keywords) or not _trains_in_loop(
                    project, module, block
                ):
                    continue
                yield finding(
                    module,
                    call,
                    "FM511",
                    "autocast's cache of weights would outlive the optimizer step under FSDP2",
                    safety=Safety.SAFE,
                    edits=[_without_cache(module, call)],
                )


def _is_autocast(project: Project, module: Module, call: ast.Call) -> bool:
    symbol = project.outside(module, call.func)
    return symbol is not None and symbol.name in _NAMES


def _trains_in_loop(project: Project, module: Module, block: ast.With) -> bool:
    """Whether a loop in the block steps the optimizer of a sharded model."""
    for loop in (n for s in block.body for n in ast.walk(s) if isinstance(n, ast.For | ast.While)):
        for call in (n for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Call)):
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
                continue
            if not isinstance(project.optimizer_of(module, call.func.value), No):
                return True
    return False


def _without_cache(module: Module, call: ast.Call) -> Edit:
    end = module.span(call).end - 1
    before = module.text[:end].rstrip()
    separator = "" if before.endswith("(") else ", " if not before.endswith(",") else " "
    return Edit(module.path, Span(len(before), len(before)), (f"{separator}cache_enabled=False",))
