"""The Pulumi side: program, components, settings per stack, and the provider plugin.

`__main__` is the program that the engine runs; `provider` is the plugin's process;
`automation` and `environment` serve `lockstep up` and `lockstep env`. Everything
that touches a machine is `bringup`'s; this folder only carries it to the engine.
May import: everything below it; pulumi, pulumi_kubernetes and grpc are imported here alone.
"""
