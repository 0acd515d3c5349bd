from torch.distributed.fsdp import fully_shard

PREFIX = "_fsdp_wrapped_module."


def clean(name):
    return name.replace("_fsdp_wrapped_module.", "")


def check(model):
    fully_shard(model)
    for name, _ in model.named_parameters():
        # TODO(fsdp-migrate FM513): remove the test or split on the prefix
        assert "_fsdp_wrapped_module" in name
        print(name.split("_fsdp_wrapped_module.")[-1])
