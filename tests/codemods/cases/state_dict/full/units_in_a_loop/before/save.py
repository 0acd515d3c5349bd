import torch
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, stage, path):
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        for name, unit in stage.named_modules():
            if not isinstance(unit, FSDP):
                continue
            state = unit.state_dict()
            if state:
                torch.save(state, f"{path}/{name}.pt")


def main(model, stage):
    model = FSDP(model)
    save(model, stage, "out")
