import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp._runtime_utils import _reshard


def purge(model):
    for module in FSDP.fsdp_modules(model):
        handles = module._handles
        if not handles:
            continue
        print(handles[0])
        always = [True for h in handles]
        _reshard(module, handles, always)


def free(module):
    handles = module._handles
    true_list = [True for h in handles]
    _reshard(module, handles, true_list)


def main(model, optimizer, reader, state):
    model = FSDP(model)
    weights = state["state"]["model"]
    found = load_sharded_optimizer_state_dict(
        model_state_dict=weights, optimizer_key="optimizers", storage_reader=reader
    )
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, found["optimizers"]))
