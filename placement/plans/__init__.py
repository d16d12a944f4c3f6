"""Planned node configurations: which mix of work each node should end up with.

`kinds` are the types of work as arrays, `pricing` finds good node contents for given
prices, `master` is the linear programme over contents, `making` joins them and rounds,
`bound` is the upper bound that plans are judged by. May import: numpy, scipy (HiGHS).
"""
