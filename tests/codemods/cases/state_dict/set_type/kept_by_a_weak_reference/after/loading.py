from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import FSDPModule


def load_state_dict(module, state):
    set_model_state_dict(module, state)


def load_local(module: FSDPModule, state):
    for key, value in get_model_state_dict(module).items():
        print(key, value)
    load_state_dict(module, state)
