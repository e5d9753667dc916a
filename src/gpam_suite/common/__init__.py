"""What every room uses: tasks, whole files, locks, options, numbers and cells as text, strict JSON, orderly stops."""
