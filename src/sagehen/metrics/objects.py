"""The metrics of the object store."""

from sagehen.metrics.metric import OWN, Kind, Metric

__all__ = ["OBJECTS"]

OBJECTS = (
    Metric(
        "ObjectFilesThrownAway",
        "sagehen_object_files_thrown_away",
        Kind.COUNTER,
        "Count",
        "Files of objects that the state does not know, and that were moved to the trash.",
        (),
        OWN,
    ),
    Metric(
        "ObjectFilesInTrash",
        "sagehen_object_files_in_trash",
        Kind.GAUGE,
        "Count",
        "Files in the trash of the object store, as of its last sweep.",
        (),
        OWN,
    ),
)
