<<<<<<< HEAD
"""Rules about FSDP1's methods, one file per method."""
=======
"""One file per public method of FSDP1's wrapper."""
>>>>>>> codemods
