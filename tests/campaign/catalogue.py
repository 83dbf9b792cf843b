"""All attacks. Each is in a file of its own."""

from __future__ import annotations

from importlib import import_module

from tests.campaign.attack import Attack

#: Modules with a tuple ATTACKS.
MODULES = (
    "corruption",
    "bit_flips",
    "hostile_folders",
    "malformed_texts",
    "malformed_commands",
    "forked_kills",
    "concurrency",
    "full_disk",
    "report_page",
    "studio_requests",
    "trust",
    "certificates",
    "process_kills",  # last, because an attempt takes up to minutes
)


def find_attacks() -> list[Attack]:
    """Return the attacks in the order of the table."""
    attacks = [attack for name in MODULES for attack in import_module(f"tests.campaign.{name}").ATTACKS]
    names = [attack.name for attack in attacks]
    if len(set(names)) != len(names):
        raise ValueError(f"two attacks have the same name: {sorted(names)}")
    return attacks
