"""The pages of the documentation: the site that MkDocs makes of them, and the code blocks in them, which are run."""
