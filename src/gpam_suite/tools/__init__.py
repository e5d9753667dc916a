"""What is asked beside experiments: cost, export, a machine's doctor, the catalogue of mechanisms."""
