//! The main job: workloads through whole pools, every byte checked.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use serde_json::Value;
use snowskin_tests::process::run;
use std::path::{Path, PathBuf};

/// The public conversation trace, laid beside the repository; published results go with it.
fn conversation() -> Option<PathBuf> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces/conversation_trace.jsonl");
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}

fn result(words: &[&str]) -> Value {
    let output = run(words);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {err}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    for field in [
        "requests",
        "block_refs",
        "block_hits",
        "block_hit_rate",
        "prefix_hit_rate",
        "token_hit_rate",
        "wrong_bytes",
        "failed_gets",
        "failed_puts",
        "evictions",
        "bytes_read",
        "bytes_written",
        "gbps",
        "p50_us",
        "p99_us",
        "policy",
        "elapsed_s",
    ] {
        assert!(!result[field].is_null(), "no {field} in {result}");
    }
    assert!(result.get("capacity_blocks").is_some());
    for field in ["wrong_bytes", "failed_gets", "failed_puts"] {
        assert_eq!(result[field], 0, "{result}");
    }
    let schema = format!("snowskin.{}/1", words[0]);
    assert_eq!(result["schema"], schema.as_str());
    println!("{words:?}: {result}");
    result
}

fn rate(result: &Value) -> f64 {
    result["block_hit_rate"].as_f64().unwrap()
}

fn is_near(result: &Value, wanted: f64, tolerance: f64) {
    let rate = rate(result);
    assert!((rate - wanted).abs() <= tolerance, "{rate}, not {wanted}");
}

#[test]
fn the_demo_moves_real_bytes_through_processes_and_through_one_process_alike() {
    let processes = result(&["demo", "--json", "--requests=600"]);
    let embedded = result(&["demo", "--embedded", "--json", "--requests=600"]);
    let alone = result(&["demo", "--policy-only", "--json", "--requests=600"]);
    assert!(rate(&processes) > 0.1);
    for field in ["requests", "block_refs", "block_hits", "prefix_hit_rate"] {
        assert_eq!(processes[field], embedded[field], "{field}");
        assert_eq!(processes[field], alone[field], "{field}");
    }
    for field in ["bytes_read", "bytes_written"] {
        assert_eq!(processes[field], embedded[field], "{field}");
        assert!(processes[field].as_u64().unwrap() > 1 << 20);
    }
}

#[test]
fn a_limited_pool_hits_as_often_as_its_policy_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let path = path.to_str().unwrap();
    let made = run(&["gen-trace", "--requests=1500", "--seed=5", "-o", path]);
    assert!(made.status.success());
    for policy in ["--policy=lru", "--policy=s3fifo"] {
        let words = [
            "replay",
            "--trace",
            path,
            "--capacity-blocks=1500",
            policy,
            "--json",
        ];
        let with = |more: &[&str]| result(&[&words[..], more].concat());
        let alone = with(&["--policy-only"]);
        let pool = with(&["--block-bytes=4096"]);
        let embedded = with(&["--block-bytes=4096", "--embedded"]);
        assert!(pool["evictions"].as_u64().unwrap() > 0);
        is_near(&pool, rate(&alone), 0.02);
        is_near(&embedded, rate(&alone), 0.02);
    }
}

#[test]
fn the_policy_alone_gives_the_known_rates_of_the_conversation_trace() {
    let Some(path) = conversation() else { return };
    let words = [
        "replay",
        "--policy-only",
        "--json",
        "--policy=lru",
        "--trace",
        path.to_str().unwrap(),
    ];
    let limited = result(&[&words[..], &["--capacity-blocks=5859"]].concat());
    is_near(&limited, 0.1360, 0.0005);
    assert_eq!(format!("{:.4}", rate(&result(&words))), "0.3664");
}

/// The conversation trace through a real pool of two nodes.
fn through_a_pool(more: &[&str]) -> Option<Value> {
    let path = conversation()?;
    let path = path.to_str()?;
    let words = [
        "replay",
        "--json",
        "--policy=lru",
        "--block-bytes=4096",
        "--trace",
        path,
    ];
    Some(result(&[&words[..], more].concat()))
}

#[test]
fn a_limited_real_pool_gives_the_known_rate_of_the_conversation_trace() {
    let Some(limited) = through_a_pool(&["--capacity-blocks=5859", "--lease=trace:1s"]) else {
        return;
    };
    is_near(&limited, 0.1360, 0.01);
    assert!(limited["evictions"].as_u64().unwrap() > 100_000);
    assert_eq!(limited["capacity_blocks"], 5859);
}

#[test]
fn an_unlimited_real_pool_gives_the_known_rate_of_the_conversation_trace() {
    let Some(unlimited) = through_a_pool(&[]) else {
        return;
    };
    assert_eq!(format!("{:.4}", rate(&unlimited)), "0.3664");
    assert_eq!(unlimited["evictions"], 0);
}
