from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def kind(model):
    return FSDP.get_state_dict_type(model).state_dict_type
