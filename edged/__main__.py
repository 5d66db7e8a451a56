"""`python -m edged`."""

from __future__ import annotations

import sys

from edged.cli import main

sys.exit(main())
