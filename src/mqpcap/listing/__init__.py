"""Messages in order, for people and programs: what `show`, `follow`, `explain` and `extract` read and find."""
