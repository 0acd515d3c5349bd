from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


class Old:
    # TODO(fsdp-migrate FM516): use `torch.amp.GradScaler`, which finds infinities on
    #   every rank
    def __init__(self, scaler: Optional["ShardedGradScaler"] = None) -> None:
        self.scaler = scaler
