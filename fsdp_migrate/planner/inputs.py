"""What the model is called with, and what of its output is the loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from checkpoint_convert.meta_model import load_name
from fsdp_migrate.errors import UsageError
from fsdp_migrate.planner.model import Inputs

SUMMED = "the output holds no loss: its mean stands for one, and what a loss function keeps is not in it"


@dataclass(frozen=True, slots=True)
class Call:
    """One forward pass up to the loss.

    Attributes:
        tensors: among the arguments.
    """

    args: tuple[Any, ...]
    keywords: dict[str, Any]
    loss: Callable[[Any], Any] | None

    @property
    def tensors(self) -> list[Tensor]:
        """Those among the arguments."""
        return [leaf for leaf in tree_leaves((self.args, self.keywords)) if isinstance(leaf, Tensor)]

    def __call__(self, model: nn.Module) -> tuple[Tensor, str]:
        """The loss, 0-dim, and what is to be said of it.

        Raises:
            UsageError: the output holds nothing to differentiate.
        """
        output = model(*self.args, **self.keywords)
        if self.loss is not None:
            loss = self.loss(output)
            if isinstance(loss, Tensor) and loss.ndim == 0 and loss.requires_grad:
                return loss, ""
            raise UsageError(
                f"--loss: it returned {_described(loss)}, not a 0-dim tensor that requires gradients",
                hint="Let the function take the model's output and return the loss.",
            )
        return _loss_of(output)


def prepare(inputs: Inputs, model: nn.Module) -> Call:
    """The arguments for `model`, made in the fake mode.

    Raises:
        UsageError: they cannot be made.
        LayoutError: a function cannot be imported.
    """
    loss = load_name(inputs.loss, "loss function") if inputs.loss else None
    if inputs.function is None:
        return Call((), _token_ids(inputs, model), loss)
    make = load_name(inputs.function, "input function")
    try:
        made = make()
    except Exception as error:  # whatever the user's code raises
        raise UsageError(
            f"--inputs {inputs.function}: calling it failed: {type(error).__name__}: {error}",
            hint="It is called without arguments, and its tensors hold no values.",
        ) from error
    # GPUs are not there: what was made for one is on the CPU as the model is.
    args, keywords = tree_map_only(Tensor, Tensor.cpu, _arguments(made))
    call = Call(args, keywords, loss)
    if not call.tensors:
        raise UsageError(
            f"--inputs {inputs.function}: it returned {_described(made)}, in which is no tensor",
            hint="Let it return a tensor, the positional arguments, a dict of keywords, or (args, kwargs).",
        )
    return call


def _token_ids(inputs: Inputs, model: nn.Module) -> dict[str, Any]:
    taken = inspect.signature(model.forward).parameters
    if "input_ids" not in taken:
        raise UsageError(
            f"--batch: {type(model).__name__}.forward takes no input_ids, but {', '.join(taken)}",
            hint="Name a function that returns its arguments: --inputs pkg.module:function",
        )
    ids = torch.zeros(inputs.batch or 1, inputs.sequence or 1, dtype=torch.long)
    found: dict[str, Any] = {"input_ids": ids}
    if "labels" in taken:
        found["labels"] = ids
    if "use_cache" in taken:  # training keeps no keys and values for generation
        found["use_cache"] = False
    return found


def _arguments(made: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    match made:
        case (list() | tuple() as args, dict() as keywords):
            return tuple(args), keywords
        case dict():
            return (), made
        case list() | tuple():
            return tuple(made), {}
        case _:
            return (made,), {}


def _loss_of(output: Any) -> tuple[Tensor, str]:
    """`output.loss`, `output["loss"]`, a 0-dim tensor in it, else the mean of all that can be trained."""
    named = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(named, Tensor) and named.ndim == 0 and named.requires_grad:
        return named, ""
    found = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad]
    scalars = [leaf for leaf in found if leaf.ndim == 0]
    if scalars:
        return scalars[0], ""
    if not found:
        raise UsageError(
            f"the model returned {_described(output)}, in which nothing requires gradients",
            hint="Name a function from the output to the loss: --loss pkg.module:function",
        )
    means = [leaf.mean() for leaf in found]
    return sum(means[1:], start=means[0]), SUMMED


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
