"""Raw text of one command → values. Pure: no file, no socket; never raises for odd input, but says Unreadable and why.

One file per source: `host`, `packages`, `nvidia`; `records` takes the probe's stream apart, `node` puts all together.
May import: `pinsets`, `inventory`, `lockstep.base`.
"""
