import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision

from model import Model, batch, loss_of

HALF = MixedPrecision(param_dtype=torch.bfloat16)


class Settings:
    def __init__(self, version, dtype):
        self.version = version
        self.precision = precision_of(version, dtype)
        self.offload = offload_of(version)

    def check(self):
        if self.version == 2:
            from torch.distributed.fsdp import MixedPrecisionPolicy as MixedPrecision
        else:
            from torch.distributed.fsdp import CPUOffload, MixedPrecision

            assert isinstance(self.offload, CPUOffload)
        if not isinstance(self.precision, MixedPrecision):
            raise TypeError(f"not a precision of version {self.version}")


def precision_of(version, dtype):
    if version == 1:
        from torch.distributed.fsdp import MixedPrecision
    elif version == 2:
        from torch.distributed.fsdp import MixedPrecisionPolicy as MixedPrecision
    extra = "output_dtype" if version == 2 else "buffer_dtype"
    return MixedPrecision(param_dtype=dtype, reduce_dtype=dtype, **{extra: dtype})


def offload_of(version):
    try:
        if version == 1:
            from torch.distributed.fsdp.fully_sharded_data_parallel import CPUOffload as Offload
        else:
            from torch.distributed.fsdp import OffloadPolicy as Offload
    finally:
        pass
    return Offload()


def shard(model, settings, **more):
    settings.check()
    precision = HALF if settings.version == 0 else settings.precision
    return FSDP(
        model, mixed_precision=precision, cpu_offload=settings.offload, use_orig_params=True, **more
    )


def main(out, version, dtype):
    model = shard(Model(), Settings(version, getattr(torch, dtype)), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
