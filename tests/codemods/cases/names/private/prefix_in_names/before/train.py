from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Block, Cross

PREFIX = "_fsdp_wrapped_module."


def clean(name):
    return name.replace("_fsdp_wrapped_module.", "")


def groups(model, fsdp):
    """The parameters that decay and those that do not."""
    if fsdp:
        embedding = "_fsdp_wrapped_module.embed.weight"
    else:
        embedding = "embed.weight"
    kept = [p for name, p in model.named_parameters() if name == embedding]
    return kept, [p for name, p in model.named_parameters() if name != embedding]


def run(blocks, x, y):
    for block in blocks:
        if isinstance(block, Block) or (
            hasattr(block, "_fsdp_wrapped_module")
            and isinstance(block._fsdp_wrapped_module, Block)
        ):
            x = block(x)
        elif isinstance(block, Cross) or (
            hasattr(block, "_fsdp_wrapped_module")
            and isinstance(block._fsdp_wrapped_module, Cross)
        ):
            x = block(x, y)
    return x


def check(model):
    model = FSDP(model)
    for name, _ in model.named_parameters():
        assert "_fsdp_wrapped_module" in name
        print(name.split("_fsdp_wrapped_module.")[-1])
