import torch
from torch.distributed.fsdp import FSDPModule


@torch.no_grad()
def restore(model: FSDPModule, state):
    for name, module in model.named_modules():
        if not isinstance(module, FSDPModule):
            continue
        # TODO(fsdp-migrate FM310): there are no flat parameters: `parameters()` of the
        #   whole model gives DTensors (a unit's own are not told from those of units in
        #   it), `.to_local()` of one this rank's part
        for param in module.params:
            # TODO(fsdp-migrate FM507): there is no flat parameter: each DTensor has its
            #   own name and whole shape, `.to_local()` is this rank's part
            assert param._is_flat_param
            # TODO(fsdp-migrate FM507): there is no flat parameter: each DTensor has its
            #   own name and whole shape, `.to_local()` is this rank's part
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
