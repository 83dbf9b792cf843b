"""Models in formats that other programs read: ONNX, plain arrays of numpy, and JSON."""

from typing import TYPE_CHECKING

from sdssm.lazy import import_on_use

if TYPE_CHECKING:
    from sdssm.exporting.exporter import ExportedModel, export
    from sdssm.exporting.formats import FORMATS
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "FORMATS": "sdssm.exporting.formats",
            "ExportedModel": "sdssm.exporting.exporter",
            "export": "sdssm.exporting.exporter",
        },
    )

__all__ = ["FORMATS", "ExportedModel", "export"]
