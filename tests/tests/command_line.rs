//! The command line, as the outside contract promises it.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use rustix::process::Signal;
use serde_json::Value;
use snowskin_tests::cluster::{Cluster, Master, Node};
use snowskin_tests::output::{code, err, is_error, json, out};
use snowskin_tests::process::{Process, run, run_with};
use snowskin_tests::values::value;
use snowskin_tests::wait;
use std::net::TcpListener;
use std::time::{Duration, Instant};

#[test]
fn the_version_tells_what_can_talk_to_what() {
    let version = json(&run(&["--version", "--json"]));
    assert_eq!(version["wire"], 1);
    assert_eq!(version["disk_format"], 1);
    assert!(version["version"].is_string() && version["commit"].is_string());
}

#[test]
fn unknown_options_commands_keys_and_variables_name_the_nearest() {
    for (words, nearest) in [
        (&["master", "--rpc-prt=1"][..], "--rpc-port"),
        (&["node", "--segment_sizes", "1GiB"], "--segment-size"),
        (&["stat", "--zzzzqqqq"], "similar argument exists: '--"),
        (&["replya"], "replay"),
        (&["put", "k", "--replicsa=2"], "--replicas"),
    ] {
        let output = run(words);
        assert_eq!(code(&output), 2, "{words:?}");
        assert!(
            err(&output).contains(nearest),
            "{words:?}: {}",
            err(&output)
        );
        let mut with_json = words.to_vec();
        with_json.push("--json");
        let output = run(&with_json);
        assert_eq!(code(&output), 2, "{words:?}");
        is_error(&output, -600, "INVALID_PARAMS", "session");
        let message = json(&output)["message"].as_str().unwrap().to_owned();
        assert!(message.contains(nearest), "{message}");
    }
    let output = run_with(&["stat"], &[("SNOWSKIN_MASTR", "x")], b"");
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("SNOWSKIN_MASTER"), "{}", err(&output));
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("c.toml", "rpc_prt = 1\n"),
        ("c.yaml", "rpc-prt: 1\n"),
        ("c.json", "{\"rpc_prt\": 1}"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let output = run(&["master", "--config", path.to_str().unwrap()]);
        assert_eq!(code(&output), 2);
        assert!(err(&output).contains("rpc-port"), "{}", err(&output));
        assert!(err(&output).contains("rpc"), "{}", err(&output));
    }
    let output = run(&["master", "--config", "no-such-file.toml"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("no-such-file.toml"));
}

#[test]
fn bad_values_say_what_is_allowed() {
    for (words, part) in [
        (&["node", "--segment-size=12QB"][..], "KiB"),
        (&["master", "--eviction-ratio=1.5"], "0 to 1"),
        (&["master", "--policy=fifo"], "lru"),
        (
            &["node", "--master=127.0.0.1", "--segment-size=1MiB"],
            "--master",
        ),
        (&["stat", "--master=nonsense"], "host:port"),
        (
            &["put", "k", "no-such-file", "--master=127.0.0.1:1"],
            "no-such-file",
        ),
        (&["get", "k"], "SNOWSKIN_MASTER"),
        (&["replay"], "--trace"),
    ] {
        let output = run(words);
        assert_eq!(code(&output), 2, "{words:?}: {}", err(&output));
        assert!(err(&output).contains(part), "{words:?}: {}", err(&output));
    }
}

#[test]
fn option_forms_mean_the_same_and_the_command_line_wins_over_environment_and_file() {
    let folder = tempfile::tempdir().unwrap();
    let texts = [
        (
            "c.toml",
            "rpc_port = 7\nput-wait = \"2s\"\nclient_ttl = \"9s\"\n",
        ),
        ("c.yaml", "rpc-port: 7\nput_wait: 2s\nclient-ttl: 9s\n"),
        (
            "c.json",
            "{\"rpc_port\": 7, \"put-wait\": \"2s\", \"client-ttl\": \"9s\"}",
        ),
    ];
    for (name, text) in texts {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        for form in [
            &["--rpc-port=8"][..],
            &["--rpc-port", "8"],
            &["--rpc_port=8"],
            &["--rpc_port", "8"],
        ] {
            let mut words = vec!["master", "--config", path, "--print-config", "--json"];
            words.extend(form);
            let shown = json(&run(&words));
            assert_eq!(shown["rpc-port"]["value"], "8");
            assert_eq!(shown["rpc-port"]["source"], "command line");
            assert_eq!(shown["put-wait"]["value"], "2s");
            assert_eq!(shown["put-wait"]["source"], "config file");
            assert_eq!(shown["suspect-after"]["source"], "default");
        }
        // The file can also be named by a variable.
        let output = run_with(
            &["master", "--print-config"],
            &[("SNOWSKIN_CONFIG", path)],
            b"",
        );
        assert_eq!(code(&output), 0);
        assert!(out(&output).contains("rpc-port = \"7\"  # config file"));
    }
    let shown = |variables: &[(&str, &str)]| {
        json(&run_with(
            &["ls", "--print-config", "--json"],
            variables,
            b"",
        ))["master"]
            .clone()
    };
    let ours = shown(&[("SNOWSKIN_MASTER", "a:1"), ("MOONCAKE_MASTER", "b:2")]);
    assert_eq!(
        (&ours["value"], &ours["source"]),
        (&"a:1".into(), &"environment".into())
    );
    assert_eq!(shown(&[("MOONCAKE_MASTER", "b:2")])["value"], "b:2");
}

#[test]
fn ready_lines_tell_where_a_process_is_and_also_stand_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let option = |name: &str| format!("--ready-file={}", file(name).display());
    let master = Master::start(&[&option("m")]);
    let node = Node::start(&master.address(), "64MiB", &[&option("n")]);
    for (ready, name, pid) in [
        (&master.ready, "m", master.process.pid()),
        (&node.ready, "n", node.process.pid()),
    ] {
        let text = std::fs::read_to_string(file(name)).unwrap();
        assert_eq!(&serde_json::from_str::<Value>(&text).unwrap(), ready);
        for field in [
            "role", "pid", "rpc", "http", "data", "node_id", "epoch", "term", "ssd",
        ] {
            assert!(ready.get(field).is_some(), "no {field} in {ready}");
        }
        assert_eq!(ready["pid"], pid);
        assert_eq!(ready["ssd"], Value::Array(Vec::new()));
    }
    assert_eq!(master.ready["role"], "master");
    assert_eq!(node.ready["role"], "node");
    assert_eq!(node.ready["term"], master.ready["term"]);

    let words = ["up", "--nodes=2", "--segment-size=64MiB"];
    let mut words: Vec<String> = words.map(str::to_owned).to_vec();
    words.push(option("u"));
    let mut up = Process::start(&words);
    let ready = up.ready();
    let text = std::fs::read_to_string(file("u")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), ready);
    assert_eq!(ready["role"], "up");
    let nodes = ready["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2);
    assert!(
        nodes
            .iter()
            .all(|n| n["role"] == "node" && n["data"].is_string())
    );
    let rpc = ready["rpc"].as_str().unwrap();
    let stat = json(&run(&["stat", "--json", "--master", rpc]));
    assert_eq!(stat["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(stat["term"], ready["term"]);
    ends_with_143(&mut up);
    // Nothing of it is left.
    assert_eq!(code(&run(&["stat", "--timeout=1s", "--master", rpc])), 4);
}

fn ends_with_143(process: &mut Process) {
    process.signal(Signal::TERM);
    let status = process.wait(Duration::from_secs(5));
    assert_eq!(status.code(), Some(143), "{}", process.stderr());
    let log = process.stderr();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

#[test]
fn a_signal_ends_every_server_in_time_and_without_a_warning() {
    let mut cluster = Cluster::start(&[], 2, "64MiB");
    let address = cluster.address();
    let put = run_with(&["put", "k", "--master", &address], &[], b"bytes");
    assert_eq!(code(&put), 0, "{}", err(&put));
    for node in &mut cluster.nodes {
        ends_with_143(&mut node.process);
    }
    ends_with_143(&mut cluster.master.process);
    let mut master = Master::start(&[]);
    master.process.signal(Signal::INT);
    assert_eq!(
        master.process.wait(Duration::from_secs(5)).code(),
        Some(130)
    );
}

#[test]
fn a_signal_also_ends_a_node_that_still_looks_for_its_master() {
    // It accepts and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let words = ["node", "--segment-size=64MiB", "--data-address=127.0.0.1:0"];
    let mut words: Vec<String> = words.map(str::to_owned).to_vec();
    words.push(format!("--master={address}"));
    let mut node = Process::start(&words);
    // It has come as far as the master.
    let (_connection, _) = silent.accept().unwrap();
    let start = Instant::now();
    node.signal(Signal::TERM);
    assert_eq!(node.wait(Duration::from_secs(5)).code(), Some(143));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_round_trip_by_hand_keeps_every_byte() {
    let cluster = Cluster::start(&["--default-kv-lease-ttl=500ms"], 1, "64MiB");
    let master = format!("--master={}", cluster.address());
    let m = master.as_str();
    let folder = tempfile::tempdir().unwrap();
    let (source, copy) = (folder.path().join("in"), folder.path().join("out"));
    let bytes = value(b"binary", 1_000_001);
    std::fs::write(&source, &bytes).unwrap();
    let put = run(&["put", "dir/k 1", source.to_str().unwrap(), "--json", m]);
    assert_eq!(code(&put), 0, "{}", err(&put));
    assert_eq!(json(&put)["size"], 1_000_001);
    assert_eq!(json(&put)["schema"], "snowskin.put/1");
    let small: Vec<u8> = (0..=255).collect();
    assert_eq!(code(&run_with(&["put", "small", "-", m], &[], &small)), 0);

    // By an option and by a variable.
    assert_eq!(run(&["get", "small", m]).stdout, small);
    let address = cluster.address();
    let by_variable = run_with(&["get", "small"], &[("SNOWSKIN_MASTER", &address)], b"");
    assert_eq!(by_variable.stdout, small);
    let get = run(&["get", "dir/k 1", "-o", copy.to_str().unwrap(), "--json", m]);
    assert_eq!(code(&get), 0, "{}", err(&get));
    assert_eq!(json(&get)["size"], 1_000_001);
    assert!(std::fs::read(&copy).unwrap() == bytes);

    let exists = run(&["exists", "small", "none", "--json", m]);
    assert_eq!(code(&exists), 3);
    assert_eq!(json(&exists)["keys"][0]["exists"], true);
    assert_eq!(json(&exists)["keys"][1]["exists"], false);
    assert_eq!(code(&run(&["exists", "small", m])), 0);
    let ls = json(&run(&["ls", "--prefix=dir/", "--json", m]));
    assert_eq!(ls["keys"], serde_json::json!(["dir/k 1"]));
    let page = json(&run(&["ls", "--limit=1", "--json", m]));
    assert_eq!(page["keys"], serde_json::json!(["dir/k 1"]));
    let next = page["cursor"].as_str().unwrap();
    let page = json(&run(&["ls", "--json", "--cursor", next, m]));
    assert_eq!(page["keys"], serde_json::json!(["small"]));
    assert_eq!(page["cursor"], Value::Null);

    let stat = json(&run(&["stat", "--json", m]));
    assert_eq!(
        (&stat["objects"], &stat["bytes"]),
        (&2.into(), &1_000_257.into())
    );
    assert_eq!(stat["nodes"][0]["state"], "alive");
    let stat = json(&run(&["stat", "small", "--json", m]));
    assert_eq!(
        (&stat["size"], &stat["tenant"]),
        (&256.into(), &"default".into())
    );
    assert_eq!(stat["replicas"].as_array().unwrap().len(), 1);
    assert_eq!(stat["replicas"][0]["tier"], "dram");

    let replace = run_with(&["put", "small", "--replace", m], &[], b"other");
    assert_eq!(code(&replace), 0, "{}", err(&replace));
    assert_eq!(run(&["get", "small", m]).stdout, b"other");
    assert_eq!(code(&run(&["rm", "small", "--force", m])), 0);
    assert_eq!(code(&run(&["get", "small", m])), 3);
    wait::until("the lease ends", Duration::from_secs(3), || {
        code(&run(&["rm", "--prefix=dir/", m])) == 0 && code(&run(&["stat", "dir/k 1", m])) == 3
    });
    assert_eq!(json(&run(&["stat", "--json", m]))["objects"], 0);
}

#[test]
fn failures_have_their_exit_codes_and_error_objects() {
    let cluster = Cluster::start(&[], 1, "64MiB");
    let master = format!("--master={}", cluster.address());
    let m = master.as_str();
    assert_eq!(code(&run_with(&["put", "k", m], &[], b"v")), 0);

    for words in [
        &["get", "none", m][..],
        &["stat", "none", m],
        &["exists", "none", m],
    ] {
        assert_eq!(code(&run(words)), 3, "{words:?}");
    }
    let missing = run(&["get", "none", "--json", m]);
    is_error(&missing, -704, "OBJECT_NOT_FOUND", "locate");
    assert_eq!(json(&missing)["key"], "none");

    let taken = run_with(&["put", "k", "--json", m], &[], b"w");
    assert_eq!(code(&taken), 6);
    is_error(&taken, -705, "OBJECT_ALREADY_EXISTS", "reserve");
    assert_eq!(run(&["get", "k", m]).stdout, b"v");
    assert_eq!(code(&run(&["rm", "k", m])), 6, "it is leased");
    let removed = run(&["rm", "k", "--json", m]);
    assert_eq!(
        json(&removed)["keys"][0]["error"]["name"],
        "OBJECT_HAS_LEASE"
    );

    let empty = run_with(&["put", "e", "--json", m], &[], b"");
    assert_eq!(code(&empty), 2);
    is_error(&empty, -600, "INVALID_PARAMS", "reserve");
    let pattern = run(&["rm", "--regex=(?=x)", "--json", m]);
    assert_eq!(code(&pattern), 2);
    assert_eq!(json(&pattern)["code"], -600);

    // More than the only segment can ever hold.
    let large = vec![1; 65 << 20];
    let never = run_with(&["put", "large", "--json", m], &[], &large);
    assert_eq!(json(&never)["code"], -600, "{}", json(&never));
    assert_eq!(code(&never), 2);

    // A free port, a peer that says nothing, a name that does not resolve.
    let free = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let quiet = silent.local_addr().unwrap().to_string();
    for address in [free.as_str(), &quiet, "no-such-host.invalid:1"] {
        let start = Instant::now();
        let output = run(&["get", "k", "--json", "--timeout=1s", "--master", address]);
        assert!(start.elapsed() < Duration::from_millis(1750), "{address}");
        assert_eq!(code(&output), 4, "{address}: {}", out(&output));
        let object = json(&output);
        assert_eq!(object["peer"], address, "{object}");
        assert_eq!(object["stage"], "session", "{object}");
    }
    let words = [
        "node",
        "--segment-size=1MiB",
        "--timeout=1s",
        "--master",
        &free,
    ];
    assert_eq!(code(&run(&words)), 4);
}

#[test]
fn a_taken_port_is_named_with_its_option() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let master = Master::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let state = format!("--state-dir={}", folder.path().display());
    let start_master = |rpc: u16, http: u16| {
        let (rpc, http) = (
            format!("--rpc-port={rpc}"),
            format!("--metrics-port={http}"),
        );
        let hosts = ["--rpc-address=127.0.0.1", "--metrics-host=127.0.0.1"];
        run(&["master", hosts[0], hosts[1], &rpc, &http, &state])
    };
    let data = format!("--data-address=127.0.0.1:{port}");
    let node = [
        "node",
        "--segment-size=1MiB",
        &data,
        "--master",
        &master.address(),
    ]
    .map(String::from);
    let node: Vec<&str> = node.iter().map(String::as_str).collect();
    for (output, option) in [
        (start_master(port, 0), "--rpc-port"),
        (start_master(0, port), "--metrics-port"),
        (run(&node), "--data-address"),
    ] {
        assert_eq!(code(&output), 2, "{}", err(&output));
        assert!(out(&output).is_empty(), "no ready line");
        let text = err(&output);
        assert!(
            text.contains(option) && text.contains(&port.to_string()),
            "{text}"
        );
    }
    // A state folder has one master at a time.
    let held = Master::start(&[&state]);
    let second = start_master(0, 0);
    assert_eq!(code(&second), 2);
    assert!(err(&second).contains("--state-dir"), "{}", err(&second));
    drop(held);
}

#[test]
fn a_segment_beyond_the_memory_limit_is_refused_at_the_start() {
    let master = Master::start(&[]);
    let address = master.address();
    for size in ["100TiB", "15TiB"] {
        let size = format!("--segment-size={size}");
        let output = run(&["node", &size, "--master", &address]);
        assert_eq!(code(&output), 2, "{}", err(&output));
        let text = err(&output);
        assert!(text.contains("--segment-size"), "{text}");
        assert!(
            text.contains("limit") || text.contains("allowed") || text.contains("memory"),
            "{text}"
        );
        assert!(out(&output).is_empty(), "no ready line");
    }
    let text = err(&run(&[
        "node",
        "--segment-size=15TiB",
        "--master",
        &address,
    ]));
    println!("the words of the refusal: {text}");
}

#[test]
fn a_malformed_trace_names_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let good = out(&run(&["gen-trace", "--requests=4", "--seed=3"]));
    assert_eq!(good, out(&run(&["gen-trace", "--requests=4", "--seed=3"])));
    for bad in [
        "{not json",
        "{\"timestamp\": 1}",
        "[]",
        "{\"timestamp\":-1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}",
    ] {
        let mut lines: Vec<&str> = good.lines().collect();
        lines.insert(2, bad);
        std::fs::write(&path, lines.join("\n")).unwrap();
        let output = run(&["replay", "--policy-only", "--trace", path.to_str().unwrap()]);
        assert_eq!(code(&output), 2, "{bad}");
        assert!(err(&output).contains("line 3"), "{}", err(&output));
    }
    let output = run(&["replay", "--trace=no-such-trace", "--json"]);
    assert_eq!(code(&output), 2);
    assert!(
        json(&output)["message"]
            .as_str()
            .unwrap()
            .contains("no-such-trace")
    );
}

#[test]
fn commands_that_end_by_themselves_log_nothing_unless_asked() {
    let cluster = Cluster::start(&[], 1, "64MiB");
    let m = format!("--master={}", cluster.address());
    for words in [
        &["stat", &m][..],
        &["ls", &m],
        &["demo", "--requests=20", "--json"],
        &["demo", "--requests=20", "--embedded", "--json"],
    ] {
        let output = run(words);
        assert_eq!(code(&output), 0, "{words:?}: {}", err(&output));
        assert_eq!(err(&output), "", "{words:?}");
    }
    let words = ["demo", "--requests=20", "--json"];
    let output = run_with(
        &words,
        &[("SNOWSKIN_LOG", "info"), ("SNOWSKIN_LOG_FORMAT", "json")],
        b"",
    );
    let lines: Vec<String> = err(&output).lines().map(str::to_owned).collect();
    assert!(!lines.is_empty());
    for line in &lines {
        serde_json::from_str::<Value>(line).unwrap();
        assert!(!line.contains("WARN") && !line.contains("ERROR"), "{line}");
    }
    let output = run_with(&["stat", &m], &[("SNOWSKIN_LOG_FORMAT", "xml")], b"");
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("json"));
}
