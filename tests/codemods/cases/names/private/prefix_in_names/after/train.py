from torch.distributed.fsdp import fully_shard

from model import Block, Cross

PREFIX = "_fsdp_wrapped_module."


def clean(name):
    return name.replace("_fsdp_wrapped_module.", "")


def groups(model, fsdp):
    """The parameters that decay and those that do not."""
    if fsdp:
        # TODO(fsdp-migrate FM513): leave the prefix out: `embed.weight`
        embedding = "_fsdp_wrapped_module.embed.weight"
    else:
        embedding = "embed.weight"
    kept = [p for name, p in model.named_parameters() if name == embedding]
    return kept, [p for name, p in model.named_parameters() if name != embedding]


def run(blocks, x, y):
    for block in blocks:
        if isinstance(block, Block):
            x = block(x)
        elif isinstance(block, Cross):
            x = block(x, y)
    return x


def check(model):
    fully_shard(model)
    for name, _ in model.named_parameters():
        # TODO(fsdp-migrate FM513): remove the test or split on the prefix
        assert "_fsdp_wrapped_module" in name
        print(name.split("_fsdp_wrapped_module.")[-1])
