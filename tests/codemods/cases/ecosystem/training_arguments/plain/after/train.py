from transformers import TrainingArguments


def arguments(large: bool) -> TrainingArguments:
    return TrainingArguments(
        output_dir="out",
        fsdp=True if large else "",
        fsdp_config={
            "version": 2,
            "reshard_after_forward": True,
            "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
        },
        bf16=True,
    )
