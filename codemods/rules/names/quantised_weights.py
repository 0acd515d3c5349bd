"""Quantised weights in a model that is sharded.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_param.py` (each parameter is cut and replaced by one of the
plain class); `bitsandbytes.nn.Params4bit` keeps its scales in an attribute."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.plain_tests import is_one_process
from codemods.rule import Finding, Module, Project, finding, rule

_LIBRARIES = ("bitsandbytes", "hqq", "auto_gptq", "torchao")
_NAMES = ("BitsAndBytesConfig", "GPTQConfig", "AwqConfig", "HqqConfig")
_KEYWORDS = ("load_in_4bit", "load_in_8bit", "quant_storage")

_SAID = {word.encode(): b"" for word in (*_LIBRARIES, *_NAMES, *_KEYWORDS)}


@rule(
    "quantised weights",
    {"FM525": "quantised weights in a model that is sharded"},
    where=_SAID,
    needs_wraps=True,
)
def quantised_weights(project: Project) -> Iterator[Finding]:
    """Weights of a quantised class do not survive `fully_shard`, and a person has to decide what to do.

    FSDP1 copied them as numbers into a flat parameter (fsdp_qlora stores 4-bit weights as bfloat16 for that).
    FSDP2 cuts every parameter by itself and puts one of the plain class in its place: what `Params4bit` keeps
    beside the numbers is lost. A class that FSDP2 can cut (`NF4Tensor` of torchao) works; frozen quantised
    weights can also be left out with `ignored_params`. Said once per file that wraps a model, is
    imported where one is wrapped, or imports that, where the setting is used: not where a function hands on
    its own parameter to another of the project, and not in a notebook that starts no other processes."""
    linked = project.with_wraps()
    for module in project.looked_at:
        if module.path not in linked or is_one_process(module):
            continue
        for call in sorted(module.calls(), key=lambda c: module.span(c).start):
            if _quantises(project, module, call):
                yield finding(
                    module,
                    call,
                    "FM525",
                    "quantised weights: `fully_shard` cuts each parameter and loses what its class keeps "
                    "beside the numbers",
                    remedy="leave frozen quantised weights out by `ignored_params`, or use a tensor class "
                    "that FSDP2 can cut (torchao's `NF4Tensor`)",
                )
                break


def _quantises(project: Project, module: Module, call: ast.Call) -> bool:
    told = [k for k in call.keywords if k.arg in _KEYWORDS and not _is_off(k.value)]
    if told and not (all(map(_is_handed_on, told)) and _is_of_project(project, module, call.func)):
        return True
    symbol = project.outside(module, call.func)
    if symbol is None or symbol.module is not None:
        return False
    name = symbol.name
    if name.rpartition(".")[2] in _NAMES:
        return True
    made = name.rpartition(".")[2].startswith(("Linear", "Params", "HQQLinear", "to_nf4", "quantize_"))
    return made and name.split(".")[0] in _LIBRARIES


def _is_handed_on(keyword: ast.keyword) -> bool:
    """`load_in_8bit=load_in_8bit`, `load_in_8bit=self.load_in_8bit`."""
    name = keyword.value.attr if isinstance(keyword.value, ast.Attribute) else keyword.value
    return keyword.arg == (name.id if isinstance(name, ast.Name) else name)


def _is_of_project(project: Project, module: Module, callee: ast.expr) -> bool:
    """Whether a function or method is the project's own, so that what it does with a setting is seen."""
    if project.links.functions.meant(module, callee):
        return True
    symbol = project.resolve(module, callee)
    return symbol is not None and symbol.module is not None


def _is_off(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value
