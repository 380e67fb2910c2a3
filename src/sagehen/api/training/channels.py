"""What InputDataConfig may be, and whether the input is there: SageMaker looks at once."""

from typing import Any

from sagehen.api.refusals import not_built, refused
from sagehen.domain.bucket_names import is_bucket_name
from sagehen.domain.locations import Location, parse_location
from sagehen.domain.objects import ListingQuery
from sagehen.errors import Invalid, NotFound
from sagehen.objects.store import ObjectStore

__all__ = ["check_channels", "place_in_s3"]

_UNBUILT_SOURCES = {
    "FileSystemDataSource": "file systems as input (FileSystemDataSource)",
    "DatasetSource": "data sets as input (DatasetSource)",
}
_UNBUILT = {
    "InstanceGroupNames": "heterogeneous clusters (InstanceGroupNames)",
    "ModelAccessConfig": "models as input (ModelAccessConfig)",
    "HubAccessConfig": "hubs (HubAccessConfig)",
}


def check_channels(params: dict[str, Any], region: str, objects: ObjectStore) -> None:
    """Check all channels of CreateTrainingJob's parameters.

    Raises:
        AwsError: SageMaker would refuse one, or Sagehen cannot provide it.
    """
    channels = params.get("InputDataConfig", [])
    names = [channel["ChannelName"] for channel in channels]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise refused(f"The channel {twice} is in InputDataConfig more than once.")
    for channel in channels:
        _check_channel(channel)
        _check_presence(channel["DataSource"]["S3DataSource"], params["RoleArn"], region, objects)


def place_in_s3(member: str, url: str) -> Location:
    """The place that a member names; raises AwsError where it is none."""
    try:
        place = parse_location(url)
    except Invalid as error:
        raise refused(f"{member}: {error}") from error
    if not is_bucket_name(place.bucket) or not url.isprintable():
        raise refused(f"{member} {url!r} is no place in S3: s3://bucket/prefix.")
    return place


def _check_channel(channel: dict[str, Any]) -> None:
    name = channel["ChannelName"]
    if not name.strip("."):
        raise refused(f"A channel cannot be called {name!r}: it is to be the name of a folder.")
    source = channel["DataSource"]
    for member, feature in _UNBUILT_SOURCES.items():
        if source.get(member):
            raise not_built(feature)
    s3 = source.get("S3DataSource")
    if s3 is None:
        raise refused(f"The channel {name} needs a DataSource with an S3DataSource.")
    for member, feature in _UNBUILT.items():
        if s3.get(member):
            raise not_built(feature)
    if s3["S3DataType"] == "Converse":
        raise not_built("conversations as input (S3DataType Converse)")
    if s3["S3DataType"] == "AugmentedManifestFile" and not s3.get("AttributeNames"):
        raise refused(f"The channel {name}: AugmentedManifestFile needs AttributeNames.")
    if channel.get("InputMode") == "Pipe":
        raise not_built("Pipe mode (InputMode of a channel); File and FastFile are")
    if channel.get("RecordWrapperType", "None") != "None":
        raise refused(f"The channel {name}: RecordWrapperType goes only with Pipe mode.")


def _check_presence(source: dict[str, Any], role: str, region: str, objects: ObjectStore) -> None:
    url = source["S3Uri"]
    place = place_in_s3("S3Uri", url)
    try:
        if source["S3DataType"] == "S3Prefix":
            query = ListingQuery(prefix=place.key, limit=1)
            found = bool(objects.list_page(place.bucket, query).objects)
        else:
            objects.head(place.bucket, place.key)
            found = True
    except NotFound:
        found = False
    if not found:
        raise refused(
            f'No S3 objects found under S3 URL "{url}" given in input data source. Please ensure '
            f"that the bucket exists in the selected region ({region}), that objects exist under "
            f'that S3 prefix, and that the role "{role}" has "s3:ListBucket" permissions on bucket '
            f'"{place.bucket}".'
        )
