from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from torch.distributed.fsdp import CPUOffload


class Strategy:
    # TODO(fsdp-migrate FM516): rewrite this by hand for `fully_shard`
    def __init__(self, cpu_offload: Union[bool, "CPUOffload", None] = None):
        self.cpu_offload = _init_cpu_offload(cpu_offload)

    def setup(self, model):
        from fsdp2_sharding import shard_model

        return shard_model(model, cpu_offload=self.cpu_offload)


# TODO(fsdp-migrate FM516): rewrite this by hand for `fully_shard`
def _init_cpu_offload(cpu_offload: Union[bool, "CPUOffload", None]) -> "CPUOffload":
    from fsdp2_sharding import CPUOffload

    return cpu_offload if isinstance(cpu_offload, CPUOffload) else CPUOffload(offload_params=bool(cpu_offload))
