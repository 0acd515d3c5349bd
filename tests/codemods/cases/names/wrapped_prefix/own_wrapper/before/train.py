from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net):
    model = FSDP(net, use_orig_params=True)
    names = [name for name, _ in model.named_parameters()]
    plain = [name.replace("_fsdp_wrapped_module.", "") for name in names]
    return [name for name in names if "_fsdp_wrapped_module" in name], plain
