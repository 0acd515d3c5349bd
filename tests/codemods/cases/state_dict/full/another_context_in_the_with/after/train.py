import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)


def whole(model):
    with torch.no_grad():
        return get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True)
        )
