from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import summon_full_params


def export(model):
    fully_shard(model)
    with summon_full_params(
        model, writeback=False, rank0_only=True, offload_to_cpu=True
    ):
        return {name: p.clone() for name, p in model.named_parameters()}
