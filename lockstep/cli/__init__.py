"""Words for people: one file per verb, no rules. May import everything below; typer and rich live here alone."""
