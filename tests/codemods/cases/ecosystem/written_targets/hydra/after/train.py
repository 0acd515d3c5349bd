import hydra
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, fully_shard

# TODO(fsdp-migrate FM201): change `MixedPrecision` together with the wrap calls that
#   take it
PRECISIONS = {"bf16": MixedPrecision(param_dtype=torch.bfloat16)}


@hydra.main(config_path="conf")
def main(cfg):
    """What the configuration makes is torch's."""
    precision = cfg.precision or hydra.utils.instantiate(cfg.wrapper.mixed_precision)
    model = FSDP(hydra.utils.instantiate(cfg.model), mixed_precision=precision)
    return fully_shard(model.head)
