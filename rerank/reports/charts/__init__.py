"""Charts of finished experiments: a file for its data and its drawing. Knows nothing of HTML but `inline_svg`."""
