"""`python -m hermesd.ctl` is `hermesctl`."""

from hermesd.ctl.main import main

if __name__ == "__main__":
    main()
