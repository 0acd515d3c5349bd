"""The bundled FSDP1 project, and the road it is taken down."""
