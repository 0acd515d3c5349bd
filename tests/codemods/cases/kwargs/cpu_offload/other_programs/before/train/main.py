from models.net import Net
from train.groups import start
from train.wrap import wrap


def main(args):
    start()
    return wrap(Net(), args.offload)
