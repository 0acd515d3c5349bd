import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)


def load(model, path):
    state = torch.load(path)
    missing = set_model_state_dict(
        model, dict(state), options=StateDictOptions(full_state_dict=True, strict=False)
    )
    print(missing, len(state))
