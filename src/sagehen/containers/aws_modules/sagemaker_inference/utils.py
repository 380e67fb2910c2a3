"""The helper functions of AWS's package that scripts use."""


def read_file(path: str, mode: str = "r") -> str:
    with open(path, mode) as file:
        return str(file.read())


def write_file(path: str, data: str, mode: str = "w") -> None:
    with open(path, mode) as file:
        file.write(data)


def parse_accept(accept: str | None) -> list[str]:
    """Returns the media types, without their parameters."""
    if accept is None:
        return []
    return [name.split(";")[0].strip() for name in accept.split(",") if name.strip()]


def remove_crlf(illegal_string: str) -> str:
    return illegal_string.replace("\n", " ").replace("\r", " ")
