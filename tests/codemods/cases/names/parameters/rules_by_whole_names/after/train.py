from torch import nn
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import summon_full_params


def shard(model: nn.Module) -> nn.Module:
    return fully_shard(model)


def groups(model: nn.Module, kept: set[str]):
    model = shard(model)
    # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match: it
    #   saw other names before
    exact = [p for n, p in model.named_parameters() if n == "head.weight"]
    # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match: it
    #   saw other names before
    listed = [p for n, p in model.named_parameters() if n in kept]
    begun = []
    for name, p in model.named_parameters():
        # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match:
        #   it saw other names before
        if name.startswith(("embed", "head")):
            begun.append(p)
    # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match: it
    #   saw other names before
    within = [p for n, p in model.named_parameters() if "blocks.0.up" in n]
    return exact, listed, begun, within


def unchanged(model: nn.Module, values: dict[str, float]):
    model = shard(model)
    biases = [p for n, p in model.named_parameters() if "bias" in n or n.endswith("norm.weight") or "blocks.0." in n]
    inner = [p for n, p in model.named_parameters() if n == "head.weight"]
    cleaned = [p for n, p in model.named_parameters() if n.replace("_fsdp_wrapped_module.", "") in values]
    with summon_full_params(model):
        whole = [p for n, p in model.named_parameters() if n == "head.weight"]
    return biases, inner, cleaned, whole
