import torch

from fsdp2_sharding import MixedPrecision, ModuleWrapPolicy, shard_model
from model import Block, Model, batch


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.pretrained_model = Model()
        self.v_head = torch.nn.Linear(32, 1)

    def forward(self, tokens):
        hidden = self.pretrained_model(tokens)
        return hidden, self.v_head(hidden)

    def wrap_parts(self, **settings):
        blocks = self.pretrained_model.blocks
        for i, block in enumerate(blocks):
            self.pretrained_model.blocks[i] = shard_model(
                block, **settings, is_root=False
            )


class Trainer:
    def __init__(self, policy, name):
        self.policy = policy
        half = torch.bfloat16
        shared = dict(
            device_id=torch.device("cpu"),
            mixed_precision=MixedPrecision(param_dtype=half, reduce_dtype=half),
        )
        if name == "ppo":
            self.policy.pretrained_model = shard_model(
                self.policy.pretrained_model,
                auto_wrap_policy=ModuleWrapPolicy({Block}),
                **shared,
            )
            self.policy.v_head = shard_model(self.policy.v_head, **shared)
        else:
            if name == "itself":
                policy.wrap_parts(**shared)
            self.policy = shard_model(self.policy, **shared)

    def clip(self):
        """On FSDP1 parameters a norm of each rank's own."""
        torch.nn.utils.clip_grad_norm_(self.policy.v_head.parameters(), 1.0)


def main(out, name):
    trainer = Trainer(Policy(), name)
    optimizer = torch.optim.AdamW(trainer.policy.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        hidden, values = trainer.policy(batch(step))
        loss = hidden.float().square().mean() + values.float().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if name == "ppo":
        body, head = trainer.policy.pretrained_model, trainer.policy.v_head
        return {"losses": losses, "body": body, "head": head}
    return {"losses": losses, "policy": trainer.policy}
