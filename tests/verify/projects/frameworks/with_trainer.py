"""A Transformers program; VERSION is the FSDP version of its Trainer."""

import torch
from toy import tokens
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VERSION = 1


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        row = tokens()[number]
        return {"input_ids": row, "labels": row}


def main() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, num_hidden_layers=2, **sizes))
    config = {"version": VERSION, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}
    arguments = TrainingArguments(
        "out",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=6,
        report_to=[],
        save_strategy="no",
        fsdp="full_shard auto_wrap" if VERSION == 1 else True,
        fsdp_config=config if VERSION == 1 else {**config, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
    )
    Trainer(model, arguments, train_dataset=Rows()).train()


main()
