import transformers
from transformers import Trainer


def trainer_save_model_safe(trainer: transformers.Trainer):
    trainer.save_model()
