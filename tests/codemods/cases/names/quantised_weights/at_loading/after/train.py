from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from fsdp2_sharding import shard_model


def main(name, four_bits):
    plain = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=False)
    # TODO(fsdp-migrate FM525): leave frozen quantised weights out by `ignored_params`,
    #   or use a tensor class that FSDP2 can cut (torchao's `NF4Tensor`)
    settings = BitsAndBytesConfig(load_in_4bit=four_bits)
    model = AutoModelForCausalLM.from_pretrained(name, quantization_config=settings)
    return shard_model(plain), shard_model(model)
