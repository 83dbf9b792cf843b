"""The report page served while trainings write: `sdssm studio`.

RunsWatcher    reads the runs of a folder, again only if files have changed
StudioServer   answers the requests of the page
"""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.studio.runs_watcher import RunsWatcher
    from sdssm.studio.server import StudioServer
else:
    __getattr__, __dir__ = import_on_use(
        __name__, {"RunsWatcher": "sdssm.studio.runs_watcher", "StudioServer": "sdssm.studio.server"}
    )

__all__ = ["RunsWatcher", "StudioServer"]
