from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from torch.distributed.fsdp import CPUOffload


class Strategy:
    def __init__(self, cpu_offload: Union[bool, "CPUOffload", None] = None):
        self.cpu_offload = _init_cpu_offload(cpu_offload)

    def setup(self, model):
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(model, cpu_offload=self.cpu_offload)


def _init_cpu_offload(cpu_offload: Union[bool, "CPUOffload", None]) -> "CPUOffload":
    from torch.distributed.fsdp import CPUOffload

    return cpu_offload if isinstance(cpu_offload, CPUOffload) else CPUOffload(offload_params=bool(cpu_offload))
