"""The provider plugin's process: the engine's protocol on one side, `bringup` on the other.

`server` speaks the protocol, `differences` decides what is a change, `sweeps` reads the
fleet once per process, `acts` calls `bringup.engine`, `guardian` ends us with the engine.
"""
