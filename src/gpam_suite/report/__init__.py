"""Where everything ends: tables, figures, pages, comparisons."""
