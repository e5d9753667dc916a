"""Where the text of a data set comes from, a module a kind."""
