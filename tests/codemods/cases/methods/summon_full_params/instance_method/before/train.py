from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def export(model):
    model = FSDP(model)
    with model.summon_full_params(
        model, writeback=False, rank0_only=True, offload_to_cpu=True
    ):
        return {name: p.clone() for name, p in model.named_parameters()}
