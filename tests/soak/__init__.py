"""The promises of docs/reliability.md at full count, ``make soak``; CI runs a sample of each in the tests it names."""
