"""What records say together: rows of a table, differences, intervals."""
