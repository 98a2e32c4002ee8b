"""`python -m hermesd.ctl` is `hermesctl`."""

import sys

from hermesd.ctl.main import main

if __name__ == "__main__":
    sys.exit(main())
