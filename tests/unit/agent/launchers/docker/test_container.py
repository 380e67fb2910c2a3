"""What a container's numbers mean."""

from sagehen.agent.launchers.docker.container import (
    listening_ports,
    read_cpu_seconds,
    read_memory_bytes,
)

HEAD = "  sl  local_address rem_address   st\n"
LISTENING = [
    "   0: 00000000:1F90 00000000:0000 0A",  # all addresses, 8080
    "   1: 0100007F:0050 00000000:0000 0A",  # loopback
    "   2: 020011AC:1388 0100007F:1234 01",  # connected
]
LISTENING_6 = [
    "   0: 00000000000000000000000000000000:1F91 00000000000000000000000000000000:0000 0A",
    "   1: 00000000000000000000000001000000:1F92 00000000000000000000000000000000:0000 0A",
]


def test_ports_that_only_the_container_reaches_do_not_count(tmp_path) -> None:
    tables = tmp_path / "7" / "net"
    tables.mkdir(parents=True)
    (tables / "tcp").write_text(HEAD + "\n".join(LISTENING))
    (tables / "tcp6").write_text(HEAD + "\n".join(LISTENING_6))
    assert listening_ports(7, tmp_path) == [8080, 8081]
    assert listening_ports(7, tmp_path, on_loopback=True) == [80, 8080, 8081, 8082]
    assert listening_ports(8, tmp_path) == []


def test_memory_leaves_out_what_the_kernel_caches() -> None:
    version_2 = {"memory_stats": {"usage": 99, "stats": {"anon": 5, "file_mapped": 2, "file": 90}}}
    version_1 = {
        "memory_stats": {"usage": 99, "stats": {"total_rss": 6, "total_mapped_file": 1, "rss": 1}}
    }
    assert read_memory_bytes(version_2) == read_memory_bytes(version_1) == 7
    assert read_memory_bytes({"memory_stats": {"usage": 99}}) == 99
    assert read_memory_bytes({}) == 0


def test_cpu_time_is_in_seconds() -> None:
    assert read_cpu_seconds({"cpu_stats": {"cpu_usage": {"total_usage": 1_500_000_000}}}) == 1.5
    assert read_cpu_seconds({"memory_stats": {}}) == 0
