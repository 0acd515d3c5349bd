from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from transformers import AutoModel


def main(name, pixels):
    model = AutoModel.from_pretrained(name)
    fully_shard(model)
    register_fsdp_forward_method(model, "get_image_features")
    image = model.get_image_features(pixels)
    text = model.generate(image, max_new_tokens=8)
    model.save_pretrained("out")
    return model(text)
