import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)

from build import Pair, build, wrapped


def evaluate(path):
    model = build(fsdp_config=None)
    model.load_state_dict(torch.load(path))
    other = Pair(fsdp_config=None)
    other.load_state_dict(torch.load(path))
    plain = wrapped(nn.Linear(4, 4), use_fsdp=False)
    plain.load_state_dict(torch.load(path))
    return model, other, plain


def train(path):
    model = build(fsdp_config={"use_orig_params": True})
    set_model_state_dict(
        model, torch.load(path), options=StateDictOptions(full_state_dict=True)
    )
    whole = wrapped(nn.Linear(4, 4), use_fsdp=True)
    set_model_state_dict(
        whole, torch.load(path), options=StateDictOptions(full_state_dict=True)
    )
    return model, whole
