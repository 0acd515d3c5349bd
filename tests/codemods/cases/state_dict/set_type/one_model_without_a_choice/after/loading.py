from torch.distributed.fsdp import FSDPModule

from fsdp2_sharding import load_model_state_dict, model_state_dict


def load_state_dict(module, state):
    load_model_state_dict(module, state)


def load_local(module: FSDPModule, state):
    for key, value in model_state_dict(module).items():
        print(key, value)
    load_state_dict(module, state)
