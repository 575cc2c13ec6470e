"""`python -m blindsight` is `blindsight`."""

from blindsight.cli import main

if __name__ == "__main__":
    main()
