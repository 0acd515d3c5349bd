import build
import train

build.build(None, True)
