import torch.distributed.fsdp as fsdp


def whole(model):
    with fsdp.FullyShardedDataParallel.state_dict_type(
        model, fsdp.StateDictType.FULL_STATE_DICT
    ):
        return model.state_dict()
