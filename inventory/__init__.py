"""What we own: fleets, pools, nodes, SKUs; loaders, checks and importers.

Holds declarations (`fleets/`, `skus/`) and the code that reads them.
May import: `lockstep.base`.
"""
