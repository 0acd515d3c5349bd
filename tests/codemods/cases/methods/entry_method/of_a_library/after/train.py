from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from transformers import AutoModel


def main(name, pixels):
    model = AutoModel.from_pretrained(name)
    fully_shard(model)
    register_fsdp_forward_method(model, "get_image_features")
    image = model.get_image_features(pixels)
    text = model.generate(image, max_new_tokens=8)
    # TODO(fsdp-migrate FM402): give it `state_dict=get_model_state_dict(model,
    #   options=StateDictOptions(full_state_dict=True, cpu_offload=True))`, called on
    #   every rank, or save and load that dict by yourself
    model.save_pretrained("out")
    return model(text)
