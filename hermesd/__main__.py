"""`python -m hermesd` is `hermesd`."""

from hermesd.cli import main

if __name__ == "__main__":
    main()
