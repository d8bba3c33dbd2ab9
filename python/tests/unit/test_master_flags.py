"""The flags of `mooncake_master` and what they become."""

import pytest

from mooncake import _flags, _master_flags
from mooncake.cli import prepare


def test_known_flags_become_options():
    words = prepare(
        [
            "--rpc_port=5",
            "--rpc_address", "127.0.0.1",
            "-metrics_port=7",
            "--metrics-host=::1",
            "--default_kv_lease_ttl=500",
            "--client_ttl=3",
            "--put_start_discard_timeout_sec=9",
            "--eviction_high_watermark_ratio=0.8",
            "--eviction_ratio=0.1",
            "--allocation_strategy=free_ratio_first",
            "--cluster_id=c",
            "--state_dir=d",
        ]
    )  # fmt: skip
    assert words[:2] == ["master", "--rpc-port=5"]
    assert set(words[2:]) == {
        "--rpc-address=127.0.0.1",
        "--metrics-port=7",
        "--metrics-host=::1",
        "--default-kv-lease-ttl=500",
        "--client-ttl=3s",
        "--put-start-discard-timeout=9s",
        "--eviction-high-watermark-ratio=0.8",
        "--eviction-ratio=0.1",
        "--allocation-strategy=free_ratio_first",
        "--cluster-id=c",
        "--state-dir=d",
    }


def test_port_is_the_older_name_of_rpc_port():
    assert prepare(["--port=4"])[1] == "--rpc-port=4"
    assert prepare(["--port=4", "--rpc_port=5"])[1] == "--rpc-port=5"
    assert prepare([]) == ["master", "--rpc-port=50051"]


def test_a_flag_without_effect_is_named_when_it_asks_for_something(capsys):
    prepare(["--enable_offload=false", "--rpc_thread_num=0", "--memory_allocator=offset"])
    assert capsys.readouterr().err == ""
    prepare(["--enable_offload", "--noallow_evict_soft_pinned_objects", "--allocation_strategy=cxl"])
    said = capsys.readouterr().err
    assert all(name in said for name in ("enable_offload", "allow_evict_soft_pinned_objects", "allocation_strategy"))
    assert len(said.splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rpc_prt=3"], "rpc_port"),
        (["--enable_offlaod"], "enable_offload"),
        (["--rpc_port=x"], "whole number"),
        (["--eviction_ratio=x"], "number"),
        (["--enable_offload=maybe"], "true or false"),
        (["--rpc_port"], "needs a value"),
        (["word"], "word"),
        (["--config_path=missing.yaml"], "missing.yaml"),
        (["--config_path=file.ini"], "file.ini"),
        (["--flagfile=missing"], "missing"),
        (["--fromenv=rpc_port"], "FLAGS_rpc_port"),
        (["--rpc_interface=nothere0"], "nothere0"),
    ],
)
def test_what_cannot_be_understood_is_a_usage_error(words, said):
    with pytest.raises(_flags.UsageError, match=said):
        prepare(words)


def test_a_usage_error_ends_the_command_with_2(capsys):
    from mooncake.cli import main

    with pytest.raises(SystemExit) as caught:
        main(["--rpc_prt=3"])
    assert caught.value.code == 2
    assert "--rpc_port" in capsys.readouterr().err


def test_boolean_forms():
    flags = {"on": _flags.Flag("bool", False), "up": _flags.Flag("bool", True), "node": _flags.Flag("int", 1)}
    assert _flags.parse(["--on", "--noup"], flags).values == {"on": True, "up": False, "node": 1}
    assert _flags.parse(["--on", "true", "--up=f", "--node=2"], flags).values == {"on": True, "up": False, "node": 2}


def test_flags_of_files_variables_and_undefok(tmp_path):
    flags = {"a": _flags.Flag("int", 0), "b": _flags.Flag("str", ""), "c": _flags.Flag("int", 0)}
    file = tmp_path / "flags"
    file.write_text("# comment\n--a=1\n--c=1\n")
    words = [f"--flagfile={file}", "--c=2", "--fromenv=b", "--tryfromenv=a", "--undefok=z", "--z=1"]
    assert _flags.parse(words, flags, {"FLAGS_b": "x"}).values == {"a": 1, "b": "x", "c": 2}


def test_files_of_flags_that_name_each_other_are_refused(tmp_path):
    file = tmp_path / "flags"
    file.write_text(f"--flagfile={file}\n")
    with pytest.raises(_flags.UsageError, match="deep"):
        _flags.parse([f"--flagfile={file}"], {"a": _flags.Flag("int", 0)})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "m.yaml",
            '---\n# c\nrpc_port: 77  # here\ndefault_kv_lease_ttl: "900"\nclient_live_ttl_sec: 60\n'
            "etcd_endpoints: ''\nenable_ha: false\nhigh:\n  low: 1\n",
        ),
        (
            "m.json",
            '{"rpc_port": 77, "default_kv_lease_ttl": 900, "client_live_ttl_sec": 60, "enable_ha": false,'
            ' "high": {"low": 1}}',
        ),
    ],
)
def test_a_configuration_file_sets_flags_and_the_words_win(tmp_path, capsys, name, text):
    file = tmp_path / name
    file.write_text(text)
    words = prepare([f"--config_path={file}"])
    assert set(words[1:]) == {"--rpc-port=77", "--default-kv-lease-ttl=900", "--client-ttl=60s"}
    assert "high.low" in capsys.readouterr().err
    assert prepare([f"--config_path={file}", "--rpc_port=3"])[1] == "--rpc-port=3"


def test_a_line_that_is_no_flat_yaml_is_named(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_text("rpc_port: 1\n- a\n")
    with pytest.raises(_flags.UsageError, match="line 2"):
        prepare([f"--config_path={file}"])


def test_every_flag_has_one_meaning():
    assert not set(_master_flags.FLAGS) & set(_master_flags.WITHOUT_EFFECT)


def test_help_names_every_flag(capsys):
    with pytest.raises(SystemExit) as caught:
        prepare(["--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert all(f"--{name} " in said for name in _master_flags.ALL_FLAGS)
