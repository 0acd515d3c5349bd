from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def resume(model, optimizer, saved):
    model = FSDP(model, use_orig_params=True)
    FSDP.optim_state_dict_to_load(model, optimizer, saved, load_directly=True)
    return model
