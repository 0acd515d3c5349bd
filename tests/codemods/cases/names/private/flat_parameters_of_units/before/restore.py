import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


@torch.no_grad()
def restore(model: FSDP, state):
    for name, module in model.named_modules():
        if not isinstance(module, FSDP):
            continue
        for param in module.params:
            assert param._is_flat_param
            for fqn, info in zip(param._fqns, param._shard_param_infos):
                if info.in_shard:
                    key = f"{name}.{fqn}".replace("_fsdp_wrapped_module.", "").lstrip(".")
                    whole = state[key].flatten()
                    start, end = info.intra_param_start_idx, info.intra_param_end_idx + 1
                    part = param[info.offset_in_shard :][: info.numel_in_shard]
                    part.copy_(whole[start:end])


class Schedule:
    """Has nothing to do with models."""

    def __init__(self, params):
        self.params = params

    def total(self):
        return sum(self.params)
