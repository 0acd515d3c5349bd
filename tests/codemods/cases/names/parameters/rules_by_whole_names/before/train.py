from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model: nn.Module) -> nn.Module:
    return FSDP(model, use_orig_params=True)


def groups(model: nn.Module, kept: set[str]):
    model = shard(model)
    exact = [p for n, p in model.named_parameters() if n == "head.weight"]
    listed = [p for n, p in model.named_parameters() if n in kept]
    begun = []
    for name, p in model.named_parameters():
        if name.startswith(("embed", "head")):
            begun.append(p)
    within = [p for n, p in model.named_parameters() if "blocks.0.up" in n]
    return exact, listed, begun, within


def unchanged(model: nn.Module, values: dict[str, float]):
    model = shard(model)
    biases = [p for n, p in model.named_parameters() if "bias" in n or n.endswith("norm.weight") or "blocks.0." in n]
    inner = [p for n, p in model.module.named_parameters() if n == "head.weight"]
    cleaned = [p for n, p in model.named_parameters() if n.replace("_fsdp_wrapped_module.", "") in values]
    with FSDP.summon_full_params(model):
        whole = [p for n, p in model.named_parameters() if n == "head.weight"]
    return biases, inner, cleaned, whole
