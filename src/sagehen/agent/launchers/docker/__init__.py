"""The `docker` launcher: a container is a container of the Docker Engine on this machine."""
