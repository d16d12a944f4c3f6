"""Packing policies for single-node work: FGD, its published rivals, and ours.

May import: numpy, scipy, `placement.{topology,state,tasks,fragmentation,plans}`.
"""
