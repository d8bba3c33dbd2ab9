//! Long runs; their rows stand in docs/proof.md.

use crate::steps::{Done, Steps, root};
use crate::test;
use std::process::Command;

/// Runs the simulator over fresh seeds for most of the time and prints a row for docs/proof.md.
pub fn run(minutes: u64) -> Done {
    let commit = Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .current_dir(root())
        .output()
        .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
        .unwrap_or_default();
    let base = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map(|d| d.as_secs())
        .unwrap_or_default();
    let mut steps = Steps::default();
    let seconds = minutes.saturating_mul(60).to_string();
    let options: Vec<String> = ["--seed", &base.to_string(), "--seconds", &seconds]
        .map(str::to_owned)
        .to_vec();
    steps.step("simulator, fresh seeds", || test::sim(&options));
    let done = steps.end();
    let result = if done.is_ok() { "clean" } else { "FAILED" };
    println!("| simulator | from seed {base} | {minutes} min | {commit} | {result} |");
    done
}
