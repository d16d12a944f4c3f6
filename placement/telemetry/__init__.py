"""Samples in, arrays out: the fast path of node agents and the aggregate path over PromQL.

May import: numpy; starlette and uvicorn in `server`, httpx in `prometheus`.
"""
