"""What every room uses: numbers and cells as text, strict JSON, orderly stops."""
