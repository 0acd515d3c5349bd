"""A part of a model that FSDP1 kept whole (`NO_SHARD`), called without the model.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_state.py` (parameters are gathered by hooks of the modules
that `fully_shard` was given)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.analysis.holding import Instance
from codemods.rule import Finding, Literal, Maybe, Named, No, Project, WrapCall, finding, options, rule
from codemods.wrap_site import arguments_of

_PARTS = ("lm_head", "embed_tokens", "get_input_embeddings", "get_output_embeddings")
"""What models of Transformers call parts that belong to no unit."""
_LAYERS = frozenset(
    {"Linear", "Bilinear", "Embedding", "EmbeddingBag", "LayerNorm", "RMSNorm", "GroupNorm"}
    | {f"{kind}{n}d" for kind in ("Conv", "ConvTranspose", "BatchNorm") for n in (1, 2, 3)}
)
"""Modules of torch with parameters of their own."""


@rule("NO_SHARD", {"FM313": "a part of a NO_SHARD model is called by itself"})
def part_of_no_shard(project: Project) -> Iterator[Finding]:
    """`model.head(x)` outside of the model's own forward, where `head` is no unit of its own.

    With NO_SHARD FSDP1's parameters were whole at any time. `fully_shard` keeps DTensors, which its units
    gather only while they are called: a part of the root alone fails with "got mixed torch.Tensor and
    DTensor", unless a forward of the model has just left the root gathered. Shard the part by itself, before
    the model, or call it between `model.unshard()` and `model.reshard()`. With other strategies FSDP1 failed
    here too, and nothing is said."""
    sites = {site for site in project.wraps if _keeps_all(project, site)}
    holders: dict[str, set[WrapCall]] = {}
    for module in project.looked_at if sites else ():
        for call in module.calls():
            part = call.func.func if isinstance(call.func, ast.Call) else call.func
            if not isinstance(part, ast.Attribute) or (part is call.func) == part.attr.startswith("get_"):
                continue
            if part.attr not in holders:
                holders[part.attr] = {s for s in sites if _is_part_of_root(project, s, part.attr)}
            holding = project.sharded(module, part.value) if holders[part.attr] else No()
            if isinstance(holding, No) or not holding.sites <= sites:
                continue
            if holding.sites & holders[part.attr]:
                yield finding(
                    module,
                    call,
                    "FM313",
                    f"NO_SHARD kept the parameters of `{ast.unparse(part)}` whole; FSDP2 gathers them only "
                    "where the model, or what is sharded by itself, is called",
                    remedy="shard this part by itself, before the model, or call it between "
                    "`model.unshard()` and `model.reshard()`",
                    is_note=isinstance(holding, Maybe),
                )


def _keeps_all(project: Project, site: WrapCall) -> bool:
    """Whether a wrap can be of that strategy."""
    arguments = {a.name: a.value for a in arguments_of(project, site)[0]}
    strategies = options(arguments["sharding_strategy"]) if "sharding_strategy" in arguments else ()
    return any(isinstance(s, Named) and s.symbol.name.endswith(".NO_SHARD") for s in strategies)


def _has_units(project: Project, site: WrapCall) -> bool:
    policies = [a.value for a in arguments_of(project, site)[0] if a.name == "auto_wrap_policy"]
    return any(not isinstance(policy, Literal) for policy in policies)


def _may_be_unit(project: Project, site: WrapCall, name: str) -> bool:
    """Whether modules of a class of torch may be units: not where the classes are listed without it."""
    policies = [a for a in arguments_of(project, site)[0] if a.name == "auto_wrap_policy"]
    texts = [ast.unparse(a.node) for a in policies if not isinstance(a.value, Literal)]
    return any("ModuleWrapPolicy(" not in text or re.search(rf"\b{name}\b", text) for text in texts)


def _is_part_of_root(project: Project, site: WrapCall, name: str) -> bool:
    """Whether an attribute of the wrapped model is a module that is in no unit but the root."""
    held = project.links.held(site.module, site.wrapped) if site.wrapped is not None else ()
    owners = [h for h in held if isinstance(h, Instance)]
    if not owners:
        return name in _PARTS
    links = project.links
    for owner in owners:
        homes = dict.fromkeys(home for _, home in links.classes.family(owner))
        nodes = links.classes.family_nodes(owner)
        for store in (s for home in homes for s in links.stores.here(home, name)):
            if store.module.class_of(store.holder) in nodes and isinstance(store.value, ast.Call):
                symbol = project.resolve(store.module, store.value.func)
                if symbol is not None and symbol.module is None:
                    last = symbol.name.rpartition(".")[2]
                    return last in _LAYERS and not _may_be_unit(project, site, last)
                if symbol is not None and symbol.module and isinstance(symbol.node, ast.ClassDef):
                    is_module = links.classes.is_module(symbol.node, symbol.module)
                    return is_module and not _has_units(project, site)
    return False
