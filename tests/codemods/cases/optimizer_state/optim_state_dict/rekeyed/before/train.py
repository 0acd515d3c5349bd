from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import OptimStateKeyType


def by_number(state, model):
    return FSDP.rekey_optim_state_dict(state, OptimStateKeyType.PARAM_ID, model)
