from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import summon_full_params


def shapes(model):
    fully_shard(model)
    with summon_full_params(model, writeback=False):
        whole = {name: tuple(p.shape) for name, p in model.named_parameters()}
        count = sum(p.numel() for p in model.parameters())
    # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match: it
    #   matched by flattened shapes before
    parts = {name: tuple(p.shape) for name, p in model.named_parameters()}
    return whole, count, parts
