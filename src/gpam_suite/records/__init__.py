"""What a run leaves behind: its folder, its record and the schema of it, packed or not."""
