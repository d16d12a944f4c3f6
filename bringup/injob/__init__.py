"""Preflight inside a job: what each rank has really mapped, met in one place and compared before the first collective.

`observe` reads one rank, `meeting` and `rendezvous` bring the reports together, `judge` decides. The audit reads hosts;
a job may bring another NCCL in its image or its virtual environment, and only its own processes can tell.
"""
