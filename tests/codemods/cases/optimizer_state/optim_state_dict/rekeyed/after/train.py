from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import OptimStateKeyType


def by_number(state, model):
    # TODO(fsdp-migrate FM404): load by name with `set_optimizer_state_dict`, or map
    #   names to numbers in your own code
    return FSDP.rekey_optim_state_dict(state, OptimStateKeyType.PARAM_ID, model)
