"""A Lightning program: FSDPStrategy under VERSION 1, fully_shard in configure_model under 2."""

import lightning
import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.nn.functional import cross_entropy
from toy import Block, Toy, tokens

VERSION = 1


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.toy = Toy()

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        return cross_entropy(self.toy(batch).flatten(0, 1), batch.flatten())

    def configure_model(self) -> None:
        if VERSION == 2:
            mesh = self.device_mesh["data_parallel"]
            for block in self.toy.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(self, mesh=mesh)
            register_fsdp_forward_method(self, "training_step")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    torch.manual_seed(0)
    strategy = FSDPStrategy(auto_wrap_policy={Block})
    if VERSION == 2:
        strategy = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
    trainer = lightning.Trainer(
        accelerator="cuda",
        devices=2,
        strategy=strategy,
        max_steps=6,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(tokens(), batch_size=4))


main()
