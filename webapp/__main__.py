"""`python -m webapp` is the command `opencode-memory`."""

from webapp.cli import main

if __name__ == "__main__":
    main()
