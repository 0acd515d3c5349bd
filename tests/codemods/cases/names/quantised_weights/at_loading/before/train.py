from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM, BitsAndBytesConfig


def main(name, four_bits):
    plain = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=False)
    settings = BitsAndBytesConfig(load_in_4bit=four_bits)
    model = AutoModelForCausalLM.from_pretrained(name, quantization_config=settings)
    return FSDP(plain), FSDP(model)
