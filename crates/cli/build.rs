//! Tells the program which commit it was built from, for `--version`. Without a repository, or
//! without git, the commit is unknown; `SNOWSKIN_COMMIT` at build time overrides both.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=SNOWSKIN_COMMIT");
    let given = std::env::var_os("SNOWSKIN_COMMIT").and_then(|c| c.into_string().ok());
    if let Some(commit) = given.or_else(head) {
        println!("cargo:rustc-env=SNOWSKIN_COMMIT={commit}");
    }
}

/// The commit that is checked out.
fn head() -> Option<String> {
    // Grows by a line with each commit and each checkout; a path that is not there would make
    // every build start over.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo:rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
