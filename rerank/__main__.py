"""`python -m rerank`, which `accelerate launch -m rerank` runs."""

from rerank.cli.main import main

try:
    main()
finally:
    # Python notes a KeyboardInterrupt in a text that a library executes, such as a dataclass, and ends `-m` by SIGINT,
    # whatever the exit code, unless a later text ends without one.
    eval("None")
