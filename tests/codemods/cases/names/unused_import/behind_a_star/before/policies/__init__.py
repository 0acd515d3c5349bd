from .precision import *
from .wrapping import *
