from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

PREFIX = "_fsdp_wrapped_module."


def clean(name):
    return name.replace("_fsdp_wrapped_module.", "")


def check(model):
    model = FSDP(model)
    for name, _ in model.named_parameters():
        assert "_fsdp_wrapped_module" in name
        print(name.split("_fsdp_wrapped_module.")[-1])
