"""A small node agent: reads the GPUs, pushes samples. ``python -m placement.agent --to URL``.

May import: nvidia-ml-py in `nvml`, httpx in `pushing`.
"""
