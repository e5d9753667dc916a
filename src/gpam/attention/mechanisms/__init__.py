"""The mechanisms, one file each: its formula, what its symbols are called here, where it departs from its source."""
