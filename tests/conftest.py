"""Property tests look at the same examples on CI each time; elsewhere they go on exploring."""

from __future__ import annotations

import os
from importlib.util import find_spec

if find_spec("hypothesis"):  # the scan tests also run on GPU machines where nothing can be installed
    from hypothesis import settings

    settings.register_profile("explore", deadline=None)  # an example's time depends on what else the machine does
    settings.register_profile("repeat", deadline=None, derandomize=True)
    settings.load_profile("repeat" if os.environ.get("CI") else "explore")
