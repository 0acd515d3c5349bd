from .wrapping import *
