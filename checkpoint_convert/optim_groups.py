"""Hyper-parameters that newer torch optimizers have and older checkpoints lack.

`dcp.load` asks for every key of the target's `param_groups`, so one absent key stops the whole load
(https://github.com/pytorch/pytorch/issues/146157). What is absent is filled with the default of torch's own
class, and said. Source: the `defaults = dict(...)` of each class in `torch/optim/*.py`, 1.12 to 2.13.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from checkpoint_convert.model import Value

OLD_GROUPS = "CK105"
"""The groups of a distributed checkpoint lack keys that newer torch releases ask for when loading."""

_COMMON: Mapping[str, Value] = {"maximize": False, "foreach": None, "differentiable": False}
_CAPTURABLE: Mapping[str, Value] = {**_COMMON, "capturable": False}


@dataclass(frozen=True, slots=True)
class _Known:
    name: str
    has: frozenset[str]
    defaults: Mapping[str, Value]


_OPTIMIZERS = (
    _Known("Adam", frozenset({"betas", "eps", "weight_decay", "amsgrad"}), {**_CAPTURABLE, "fused": None}),
    _Known("NAdam", frozenset({"betas", "momentum_decay"}), {**_CAPTURABLE, "decoupled_weight_decay": False}),
    _Known("SGD", frozenset({"momentum", "dampening", "nesterov"}), {**_COMMON, "fused": None}),
    _Known("RMSprop", frozenset({"alpha", "centered", "momentum"}), _CAPTURABLE),
    _Known("Adagrad", frozenset({"lr_decay", "initial_accumulator_value"}), {**_COMMON, "fused": None}),
    _Known("Adadelta", frozenset({"rho", "eps", "weight_decay"}), _CAPTURABLE),
    _Known("ASGD", frozenset({"lambd", "alpha", "t0"}), _CAPTURABLE),
    _Known("Rprop", frozenset({"etas", "step_sizes"}), _CAPTURABLE),
)


@dataclass(frozen=True, slots=True)
class FilledGroup:
    """A group's hyper-parameters, completed.

    Attributes:
        optimizer: the class that was recognised, such as `AdamW`; empty where none was.
        filled: the names that were added.
        sure: False where Adam and AdamW could not be told apart and it matters.
    """

    options: Mapping[str, Value]
    optimizer: str
    filled: tuple[str, ...]
    sure: bool = True


def complete_group(options: Mapping[str, Value]) -> FilledGroup:
    """Add what torch's current optimizer class has and the checkpoint lacks.

    Args:
        options: a group's hyper-parameters in the order the checkpoint has them.
    """
    known = next((known for known in _OPTIMIZERS if known.has <= options.keys()), None)
    if known is None:
        return FilledGroup(options, "", ())
    defaults, name, sure = dict(known.defaults), known.name, True
    if known.name == "Adam":
        decoupled, sure = _decoupled(options)
        defaults["decoupled_weight_decay"] = decoupled
        name = "AdamW" if options.get("decoupled_weight_decay", decoupled) else "Adam"
    filled = {key: value for key, value in defaults.items() if key not in options}
    return FilledGroup(
        {**options, **filled}, name, tuple(filled), sure or "decoupled_weight_decay" not in filled
    )


def _decoupled(options: Mapping[str, Value]) -> tuple[bool, bool]:
    """Whether a group of Adam's family is AdamW's, and whether that is sure.

    Up to torch 2.6 the two classes had the same keys in a different order: AdamW `foreach` before `maximize`,
    Adam the other way round. Without weight decay the answer changes nothing. A DCP directory of several
    ranks has lost the order, which the keys before these two betray.
    """
    order = list(options)
    head = ("lr", "betas", "eps", "amsgrad")
    if {*head, "foreach", "maximize"} <= options.keys():
        places = [order.index(key) for key in head]
        foreach, maximize = order.index("foreach"), order.index("maximize")
        if places == sorted(places) and places[-1] < min(foreach, maximize):
            return foreach < maximize, True
    return True, options.get("weight_decay") == 0
