"""The engine's gRPC stubs from the pulumi wheel, without importing the SDK around them.

`import pulumi` costs 0.9 s of CPU, and the plugin starts anew for every preview. The stubs
import only each other, so they load under a package name of our own; protobuf gives the
same message classes as the SDK's own import would.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

__all__ = ["engine", "engine_grpc", "plugin", "provider", "provider_grpc", "status"]

_PACKAGE = "stacks.provider._wheel"


def _load(name: str) -> Any:
    if _PACKAGE not in sys.modules:
        spec = importlib.util.find_spec("pulumi")
        if spec is None or not spec.submodule_search_locations:
            raise ImportError("the pulumi package is not installed; install the extra [engine]")
        package = types.ModuleType(_PACKAGE)
        package.__path__ = [str(Path(spec.submodule_search_locations[0]) / "runtime" / "proto")]
        sys.modules[_PACKAGE] = package
    return importlib.import_module(f"{_PACKAGE}.{name}")


if TYPE_CHECKING:
    from pulumi.runtime.proto import engine_pb2 as engine
    from pulumi.runtime.proto import engine_pb2_grpc as engine_grpc
    from pulumi.runtime.proto import plugin_pb2 as plugin
    from pulumi.runtime.proto import provider_pb2 as provider
    from pulumi.runtime.proto import provider_pb2_grpc as provider_grpc
    from pulumi.runtime.proto import status_pb2 as status
else:
    engine = _load("engine_pb2")
    engine_grpc = _load("engine_pb2_grpc")
    plugin = _load("plugin_pb2")
    provider = _load("provider_pb2")
    provider_grpc = _load("provider_pb2_grpc")
    status = _load("status_pb2")
