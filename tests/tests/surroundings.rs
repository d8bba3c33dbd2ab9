//! Commands in odd surroundings: readers that leave, full disks, tight limits, variables that mean
//! nothing, and requests that can be fulfilled in part only.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use snowskin_tests::cluster::{Cluster, SHORT};
use snowskin_tests::output::{code, err, is_error, json, out};
use snowskin_tests::process::{run, run_into, run_limited, run_with};
use snowskin_tests::wait;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

#[test]
fn too_few_open_files_are_no_fault_of_the_segment() {
    let words = ["node", "--segment-size=1MiB", "--master=127.0.0.1:1"];
    let output = run_limited("-n 20", &words);
    assert_eq!(code(&output), 2, "{}", err(&output));
    let text = err(&output);
    assert!(
        text.contains("RLIMIT_NOFILE") && text.contains("limit 20"),
        "{text}"
    );
    assert!(!text.contains("--segment-size"), "{text}");
}

/// The tests' user may be exempt from the limit; then there is nothing to tell.
#[test]
fn a_node_tells_of_a_limit_of_locked_memory_below_its_segment() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let rights = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let rights = u64::from_str_radix(rights.unwrap().trim(), 16).unwrap();
    let exempt = rights >> 14 & 1 == 1;
    let words = [
        "node",
        "--segment-size=1MiB",
        "--timeout=1s",
        "--master=127.0.0.1:1",
    ];
    let output = run_limited("-l 64", &words);
    assert_eq!(code(&output), 4, "{}", err(&output));
    let text = err(&output);
    let told = text.lines().filter(|l| l.contains("RLIMIT_MEMLOCK"));
    let told: Vec<&str> = told.collect();
    assert_eq!(told.len(), usize::from(!exempt), "{text}");
    for line in told {
        assert!(line.contains("INFO") && line.contains("65536"), "{line}");
    }
}

#[test]
fn words_that_are_no_text_are_refused_by_their_number() {
    let words = ["exists", "--master=127.0.0.1:1", "--json"].map(OsStr::new);
    let output = run(&[&words[..], &[OsStr::from_bytes(b"a\xffb")]].concat());
    assert_eq!(code(&output), 2, "{}", err(&output));
    is_error(&output, -600, "INVALID_PARAMS", "session");
    let message = json(&output)["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("word 4") && message.contains("UTF-8"),
        "{message}"
    );
    assert_eq!(err(&output), "");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let cluster = Cluster::start(&[], 1, "64MiB");
    let master = format!("--master={}", cluster.address());
    let m = master.as_str();
    assert_eq!(code(&run_with(&["put", "k", m], &[], b"v")), 0);
    for words in [
        &["stat", m][..],
        &["stat", "--json", m],
        &["ls", m],
        &["get", "k", m],
        &["--help"],
        // More than a pipe holds.
        &["gen-trace", "--requests=2000"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = run_into(words, writer);
        assert_eq!(code(&output), 0, "{words:?}: {}", err(&output));
        assert_eq!(err(&output), "", "{words:?}");
    }
    // Like `| head -1`: one that leaves in the middle.
    let (reader, writer) = std::io::pipe().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut line = String::new();
            BufReader::new(reader).read_line(&mut line).unwrap();
            assert!(line.starts_with('{'), "{line}");
        });
        run_into(&["gen-trace", "--requests=20000"], writer)
    });
    assert_eq!((code(&output), err(&output)), (0, String::new()));
}

#[test]
fn results_that_a_full_disk_does_not_take_are_a_failure() {
    let cluster = Cluster::start(&[], 1, "64MiB");
    let master = format!("--master={}", cluster.address());
    let m = master.as_str();
    assert_eq!(code(&run_with(&["put", "k", m], &[], b"v")), 0);
    for words in [
        &["stat", m][..],
        &["stat", "--json", m],
        &["ls", m],
        &["get", "k", m],
        &["exists", "k", "none", m],
        &["--help"],
        &["gen-trace", "--requests=100"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = run_into(words, full);
        assert_eq!(code(&output), 1, "{words:?}: {}", err(&output));
        assert!(!err(&output).contains("panicked"), "{}", err(&output));
    }
}

#[test]
fn a_workload_goes_to_a_running_cluster_only_by_its_option() {
    for words in [
        &["demo", "--requests=20", "--json"][..],
        &["demo", "--requests=20", "--json", "--embedded"],
    ] {
        // Nothing listens there.
        let elsewhere = [
            ("SNOWSKIN_MASTER", "127.0.0.1:1"),
            ("MOONCAKE_MASTER", "127.0.0.1:1"),
        ];
        let output = run_with(words, &elsewhere, b"");
        assert_eq!(code(&output), 0, "{words:?}: {}", err(&output));
        assert_eq!(json(&output)["requests"], 20);
    }
    let output = run(&["demo", "--embedded", "--master=127.0.0.1:1"]);
    assert_eq!(code(&output), 2);
    let text = err(&output);
    assert!(
        text.contains("--embedded") && text.contains("--master"),
        "{text}"
    );
}

#[test]
fn a_sweep_that_leases_kept_from_all_it_meant_is_refused_in_part() {
    let cluster = Cluster::start(&["--default-kv-lease-ttl=60s"], 1, "64MiB");
    let master = format!("--master={}", cluster.address());
    let m = master.as_str();
    for key in ["a/leased", "a/free", "b/leased"] {
        assert_eq!(code(&run_with(&["put", key, m], &[], b"v")), 0);
    }
    for key in ["a/leased", "b/leased"] {
        assert_eq!(code(&run(&["exists", key, m])), 0);
    }
    for (sweep, removed) in [("--prefix=a/", 1), ("--prefix=a/", 0), ("--regex=^b", 0)] {
        let output = run(&["rm", sweep, "--json", m]);
        assert_eq!(code(&output), 6, "{sweep}: {}", err(&output));
        let swept = json(&output);
        assert_eq!(
            (&swept["removed"], &swept["leased"]),
            (&removed.into(), &1.into()),
            "{sweep}"
        );
    }
    let output = run(&["rm", "--all", "--force", "--json", m]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(json(&output)["removed"], 2);
    assert_eq!(code(&run(&["rm", "--prefix=none/", m])), 0);
}

#[test]
fn variables_without_a_use_are_checked_or_named_once() {
    for (name, allowed) in [
        ("SNOWSKIN_SAME_HOST", "auto and off"),
        ("SNOWSKIN_STRICT_BUFFERS", "1, true"),
    ] {
        let output = run_with(&["gen-trace", "--requests=1"], &[(name, "perhaps")], b"");
        assert_eq!(code(&output), 2, "{name}");
        let text = err(&output);
        assert!(text.contains(name) && text.contains(allowed), "{text}");
    }
    let set = [
        ("SNOWSKIN_SAME_HOST", "off"),
        ("SNOWSKIN_STRICT_BUFFERS", "0"),
        ("MOONCAKE_CONFIG_PATH", "nowhere.json"),
        ("MOONCAKE_OFFLOAD_ENABLED", "true"),
        ("MOONCAKE_OFFLOAD_FSDIR", ""),
        ("SNOWSKIN_LOG", "info"),
    ];
    // Its master and nodes say nothing of it once more.
    let output = run_with(&["demo", "--requests=5", "--json"], &set, b"");
    assert_eq!(code(&output), 0, "{}", err(&output));
    let log = err(&output);
    let lines: Vec<&str> = log.lines().filter(|l| l.contains("not used by")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    for part in ["INFO", "MOONCAKE_CONFIG_PATH, MOONCAKE_OFFLOAD_ENABLED"] {
        assert!(lines[0].contains(part), "{}", lines[0]);
    }
    assert!(!log.contains("FSDIR"), "{log}");
}

/// More copies than nodes is no failure: as many as there can be are made, and their number is told.
#[test]
fn a_put_tells_how_many_of_its_copies_there_are() {
    let mut cluster = Cluster::start(SHORT, 2, "64MiB");
    let master = format!("--master={}", cluster.address());
    let m = master.as_str();
    let copies = |key: &str| {
        let output = run_with(&["put", key, "--replicas=2", "--json", m], &[], b"value");
        assert_eq!(code(&output), 0, "{}", err(&output));
        let put = json(&output)["replicas"].as_u64().unwrap();
        let stat = json(&run(&["stat", key, "--json", m]));
        assert_eq!(stat["replicas"].as_array().unwrap().len() as u64, put);
        assert_eq!(run(&["get", key, m]).stdout, b"value");
        put
    };
    assert_eq!(copies("two"), 2);
    // It is still taken for alive, so the put finds out by itself.
    cluster.nodes[1].process.kill();
    assert_eq!(copies("dead"), 1);
    wait::until("the node is gone", Duration::from_secs(15), || {
        json(&run(&["stat", "--json", m]))["nodes"][1]["state"] != "alive"
    });
    assert_eq!(copies("gone"), 1);
    let output = run_with(&["put", "words", "--replicas=2", m], &[], b"v");
    assert!(out(&output).contains("1 of 2 replica"), "{}", out(&output));
}

#[test]
fn a_replay_with_failures_is_one_result_that_holds_them() {
    let cluster = Cluster::start(&[], 1, "16MiB");
    let master = format!("--master={}", cluster.address());
    // A block larger than the only segment can never be stored.
    let words = [
        "demo",
        "--requests=3",
        "--block-bytes=17MiB",
        &master,
        "--json",
    ];
    let output = run(&words);
    assert_eq!(code(&output), 1, "{}", err(&output));
    let result = json(&output);
    assert_eq!(result["schema"], "snowskin.demo/1");
    assert!(result["failed_puts"].as_u64().unwrap() > 0, "{result}");
    let failures = result["failures"].as_array().unwrap();
    assert!((1..=5).contains(&failures.len()), "{result}");
    assert_eq!(failures[0]["code"], -600, "{result}");
    assert!(failures[0]["key"].as_str().unwrap().starts_with("block/"));
    assert_eq!(err(&output), "");
    let output = run(&words[..4]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("puts failed"), "{}", err(&output));
}
