from torch.distributed.fsdp import fully_shard


def train(net):
    model = fully_shard(net)
    names = [name for name, _ in model.named_parameters()]
    plain = [name.replace("_fsdp_wrapped_module.", "") for name in names]
    return [name for name in names if "_fsdp_wrapped_module" in name], plain
