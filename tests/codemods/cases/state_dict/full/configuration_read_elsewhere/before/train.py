import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
from conf import save_policy


def main(model):
    model = FSDP(model, use_orig_params=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save_policy):
        state = model.state_dict()
    torch.save(state, "x.pt")
