from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


def prepare(model, optimizer, saved):
    fully_shard(model)
    # TODO(fsdp-migrate FM405): use `set_optimizer_state_dict(model, optimizer, state,
    #   options=...)` from `torch.distributed.checkpoint.state_dict`; it loads by
    #   itself, so the following `optimizer.load_state_dict` goes
    return FSDP.optim_state_dict_to_load(model, optimizer, saved)
