from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def kind(model):
    # TODO(fsdp-migrate FM406): keep what your code chose in a variable of its own
    return FSDP.get_state_dict_type(model).state_dict_type
