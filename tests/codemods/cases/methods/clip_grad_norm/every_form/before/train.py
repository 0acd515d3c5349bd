import torch

from model import Model, batch, loss_of
from trainer import Trainer


def main(out, max_norm):
    torch.manual_seed(3)
    trainer = Trainer(max_norm)
    plain = Model()
    models = [trainer.policy, trainer.model.generator, trainer.model.critic, plain]
    for model in models:
        loss_of(model, batch(0)).backward()
    norms = [
        trainer.clip_gradient(),
        trainer.of_a_part(),
        trainer.positional(),
        trainer.with_a_keyword(),
        trainer.each_net(),
        trainer.either(trainer.policy),
        trainer.either(plain),
        trainer.if_it_can(trainer.model.critic),
        trainer.if_it_can(plain),
    ]
    return {"norms": norms, "lines": trainer.lines, "critic": trainer.model.critic}
