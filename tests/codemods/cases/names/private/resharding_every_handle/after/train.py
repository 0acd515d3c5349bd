import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule, fully_shard


def purge(model):
    for module in [
        module for module in model.modules() if isinstance(module, FSDPModule)
    ]:
        # TODO(fsdp-migrate FM507): FSDP2 has no handles: `module.reshard()` reshards,
        #   `parameter.to_local()` is a shard
        handles = module._handles
        if not handles:
            continue
        print(handles[0])
        module.reshard()


def free(module):
    module.reshard()


def main(model, optimizer, reader, state):
    fully_shard(model)
    found = {"optimizers": get_optimizer_state_dict(model, optimizer)}
    dcp.load(found, storage_reader=reader)
    set_optimizer_state_dict(model, optimizer, found["optimizers"])
