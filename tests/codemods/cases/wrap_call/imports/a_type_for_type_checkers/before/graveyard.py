from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


class Old:
    def __init__(self, scaler: Optional["ShardedGradScaler"] = None) -> None:
        self.scaler = scaler
