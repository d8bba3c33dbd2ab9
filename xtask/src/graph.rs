//! The crate graph: arrows point down, and only where this table allows.

use crate::steps::{Done, cargo};
use serde_json::Value;

/// Which crates of the workspace each crate may depend on. `*`: any.
const ALLOWED: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("memory", &["types"]),
    ("runtime", &["types", "memory"]),
    ("proto", &["types"]),
    ("directory", &["types"]),
    ("store", &["types"]),
    ("ssd", &["types"]),
    ("transfer", &["types", "memory", "runtime", "proto"]),
    (
        "master",
        &["directory", "proto", "runtime", "types", "memory"],
    ),
    (
        "node",
        &["store", "transfer", "proto", "runtime", "memory", "types"],
    ),
    (
        "client",
        &[
            "transfer", "proto", "runtime", "types", "memory", "node", "master",
        ],
    ),
    (
        "cli",
        &[
            "client", "master", "node", "proto", "store", "types", "runtime",
        ],
    ),
    ("device", &["types", "memory"]),
    (
        "engine",
        &["device", "transfer", "proto", "runtime", "memory", "types"],
    ),
    (
        "python",
        &["client", "engine", "device", "memory", "runtime", "types"],
    ),
    ("sim", &["*"]),
    ("model", &[]),
    ("bench", &["*"]),
    ("tests", &["*"]),
    ("xtask", &["types"]),
];

/// Crates on which nothing may depend.
const TOP: &[&str] = &["cli", "python", "sim", "model", "bench", "tests", "xtask"];

/// What the pure cores may use from outside: nothing that does I/O.
const PURE: &[&str] = &[
    "snowskin-types",
    "hashbrown",
    "offset-allocator",
    "regex",
    "thiserror",
    "xxhash-rust",
    "serde",
];

fn short(name: &str) -> &str {
    name.strip_prefix("snowskin-").unwrap_or(name)
}

/// Compares the workspace with the table.
pub fn check() -> Done {
    let output = cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--offline",
    ])
    .output()
    .map_err(|e| format!("cargo metadata: {e}"))?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = short(package["name"].as_str().unwrap_or_default());
        let Some((_, allowed)) = ALLOWED.iter().find(|(n, _)| *n == name) else {
            wrong.push(format!("crate {name} has no row in xtask/src/graph.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let full = dependency["name"].as_str().unwrap_or_default();
            let dev = dependency["kind"].as_str() == Some("dev");
            let pure = matches!(name, "directory" | "store" | "ssd");
            if pure && !dev && !PURE.contains(&full) {
                wrong.push(format!("the pure core {name} depends on {full}"));
            }
            let Some(target) = full.strip_prefix("snowskin-") else {
                continue;
            };
            if TOP.contains(&target) {
                wrong.push(format!(
                    "{name} depends on {target}, on which nothing may depend"
                ));
            } else if !dev && !allowed.contains(&"*") && !allowed.contains(&target) {
                wrong.push(format!(
                    "{name} depends on {target}, which the table does not allow"
                ));
            }
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; "))
    }
}
