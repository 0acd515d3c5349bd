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


def smoothed(factor):
    # TODO(fsdp-migrate FM617): give the trainer a `compute_loss_func` that shifts and
    #   smooths, and drop this
    return TrainingArguments(
        "out",
        fsdp=True,
        fsdp_config={
            "version": 2,
            "reshard_after_forward": True,
            "auto_wrap_policy": "NO_WRAP",
        },
        label_smoothing_factor=factor,
    )


def not_smoothed():
    return TrainingArguments(
        "out",
        fsdp=True,
        fsdp_config={
            "version": 2,
            "reshard_after_forward": True,
            "auto_wrap_policy": "NO_WRAP",
        },
        label_smoothing_factor=0.0,
    )
