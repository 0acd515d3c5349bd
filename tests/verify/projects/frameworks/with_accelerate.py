"""An Accelerate program; VERSION is the FSDP version of its plugin."""

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch.nn.functional import cross_entropy
from toy import Toy, tokens

VERSION = 1


def main() -> None:
    torch.manual_seed(0)
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=VERSION,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Block"],
        use_orig_params=True if VERSION == 1 else None,
    )
    accelerator = Accelerator(fsdp_plugin=plugin, gradient_accumulation_steps=2)
    model = Toy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(tokens(), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(cross_entropy(model(batch).flatten(0, 1), batch.flatten()))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


main()
