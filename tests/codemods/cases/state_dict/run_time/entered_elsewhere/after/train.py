from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)

from fsdp2_sharding import (
    FullStateDictConfig,
    StateDictType,
    model_state_dict,
    state_dict_type,
)
from steps import build, train


@dataclass
class SaveConfig:
    state_type: StateDictType = StateDictType.FULL_STATE_DICT
    config: FullStateDictConfig = field(
        default_factory=lambda: FullStateDictConfig(rank0_only=True)
    )


def full_context(model, rank0_only):
    config = FullStateDictConfig(rank0_only=rank0_only)
    return state_dict_type(model, StateDictType.FULL_STATE_DICT, config)


class Saving:
    """A context of the project's own."""

    def __init__(self, model, settings):
        self.context = state_dict_type(model, settings.state_type, settings.config)

    def __enter__(self):
        return self.context.__enter__()

    def __exit__(self, *raised):
        return self.context.__exit__(*raised)


def chosen(model, rank0_only):
    """Returned by a function, kept in a variable."""
    context = full_context(model, rank0_only)
    with context:
        return model_state_dict(model)


def stacked(model, rank0_only):
    """Entered through a stack of contexts."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if rank0_only:
            stack.enter_context(
                state_dict_type(
                    model,
                    StateDictType.FULL_STATE_DICT,
                    FullStateDictConfig(rank0_only=True),
                )
            )
        return model_state_dict(model)


def conditional(model, rank0_only):
    """Chosen by a condition."""
    context = (
        state_dict_type(
            model,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(rank0_only=True),
        )
        if rank0_only
        else nullcontext()
    )
    with context:
        return model_state_dict(model)


def nested(model, rank0_only):
    """One context in another; the outer one is in force again afterwards."""
    with full_context(model, rank0_only):
        first = model_state_dict(model)
        second = get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True)
        )
        return {"outer": first, "inner": second, "again": model_state_dict(model)}


def of_a_part(model, rank0_only):
    """For parts of the model, each a unit of its own."""
    config = FullStateDictConfig(rank0_only=rank0_only)
    last = model.blocks[-1]
    with state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        parts = [model_state_dict(model.blocks[0]), model_state_dict(last)]
    with state_dict_type(last, StateDictType.FULL_STATE_DICT, config):
        return [*parts, model_state_dict(last)]


def owned(model, settings):
    with Saving(model, settings):
        return model_state_dict(model)


def main(out, rank0_only):
    model, optimizer = build()
    losses = train(model, optimizer, 0, 2)
    states = {
        "chosen": chosen(model, rank0_only),
        "stacked": stacked(model, rank0_only),
        "conditional": conditional(model, rank0_only),
        "nested": nested(model, rank0_only),
        "part": of_a_part(model, rank0_only),
    }
    states["owned"] = owned(model, SaveConfig())
    states["outside"] = model_state_dict(model)
    if dist.get_rank() == 0:
        torch.save(states, out / "states.pt")
    return {"losses": losses, "states": states}
