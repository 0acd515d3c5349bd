import torch
from transformers import Trainer, TrainingArguments


class Quiet(Trainer):
    pass


def main(model, data, path):
    args = TrainingArguments("out", fsdp="full_shard auto_wrap")
    trainer = Quiet(model, args, train_dataset=data)
    print(sum(p.numel() for p in trainer.model.parameters()))
    trainer.train()
    trainer.save_model(path)
    state = trainer.model.state_dict()
    if trainer.args.should_save:
        torch.save(state, path)
    trainer.model_wrapped.save_pretrained(path)
