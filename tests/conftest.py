"""Under pytest, every jaxtyping annotation of the algorithms is checked at run time (shapes, dtypes, axis letters)."""

import sys

from jaxtyping import install_import_hook

CHECKED = ["counterpoint.algorithms"]
# `float` accepts int, as in PEP 484. Installed before any test module imports what is checked.
TYPECHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"

assert not any(name.startswith(f"{package}.") for name in sys.modules for package in CHECKED)
install_import_hook(CHECKED, TYPECHECKER)
