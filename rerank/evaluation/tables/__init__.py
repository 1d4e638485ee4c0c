"""Tables of comparisons, as text, Markdown, LaTeX, CSV and JSON. They show what they get and compute nothing."""
