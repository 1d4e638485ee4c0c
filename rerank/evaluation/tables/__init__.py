"""Tables of comparisons, as text, Markdown and LaTeX. They show what they get and compute nothing."""
