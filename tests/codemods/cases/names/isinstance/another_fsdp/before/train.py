from fairscale.nn import FullyShardedDataParallel as FSDP


def is_sharded(model):
    return isinstance(model, FSDP)


def clip(model: FSDP):
    model = FSDP(model)
    with FSDP.state_dict_type(model, "full"):
        model.state_dict()
    return model.clip_grad_norm_(1.0)
