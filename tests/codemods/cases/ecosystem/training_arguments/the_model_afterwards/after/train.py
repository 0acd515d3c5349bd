import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from transformers import Trainer, TrainingArguments


class Quiet(Trainer):
    pass


def main(model, data, path):
    args = TrainingArguments(
        "out", fsdp=True, fsdp_config={"version": 2, "reshard_after_forward": True}
    )
    trainer = Quiet(model, args, train_dataset=data)
    print(sum(p.numel() for p in trainer.model.parameters()))
    trainer.train()
    trainer.save_model(path)
    state = get_model_state_dict(
        trainer.model, options=StateDictOptions(full_state_dict=True)
    )
    if trainer.args.should_save:
        torch.save(state, path)
    # TODO(fsdp-migrate FM402): give it `state_dict=get_model_state_dict(model,
    #   options=StateDictOptions(full_state_dict=True, cpu_offload=True))`, called on
    #   every rank, or save and load that dict by yourself
    trainer.model_wrapped.save_pretrained(path)
