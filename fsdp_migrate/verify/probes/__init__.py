"""What is observed in a running job, one probe per file, each attached through a global hook of torch.

A probe communicates nothing, draws no random number and leaves every tensor of the job as it was.
"""
