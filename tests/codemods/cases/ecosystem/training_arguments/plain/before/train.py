from transformers import TrainingArguments


def arguments(large: bool) -> TrainingArguments:
    return TrainingArguments(
        output_dir="out",
        fsdp="full_shard auto_wrap" if large else "",
        fsdp_transformer_layer_cls_to_wrap="LlamaDecoderLayer",
        bf16=True,
    )


def smoothed(factor):
    return TrainingArguments("out", fsdp="full_shard", label_smoothing_factor=factor)


def not_smoothed():
    return TrainingArguments("out", fsdp="full_shard", label_smoothing_factor=0.0)
