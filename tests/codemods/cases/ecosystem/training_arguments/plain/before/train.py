from transformers import TrainingArguments


def arguments(large: bool) -> TrainingArguments:
    return TrainingArguments(
        output_dir="out",
        fsdp="full_shard auto_wrap" if large else "",
        fsdp_transformer_layer_cls_to_wrap="LlamaDecoderLayer",
        bf16=True,
    )
