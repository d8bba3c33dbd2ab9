//! The rules of the tree that no compiler checks.

use crate::steps::{Done, Steps, root};
use crate::{errors_page, graph};
use std::path::{Path, PathBuf};
use std::process::Command;

const LINES_MAX: usize = 800;
const BYTES_MAX: u64 = 1 << 20;
const BANNED_MODULES: &[&str] = &[
    "utils", "helpers", "common", "misc", "manager", "service", "impl", "v2", "new", "old",
];
/// Crates that may contain unsafe code.
const UNSAFE_CRATES: &[&str] = &["memory", "device", "native"];

/// Runs all checks.
pub fn run() -> Done {
    let files = tracked()?;
    let mut steps = Steps::default();
    steps.step("tidy: crate graph", graph::check);
    steps.step("tidy: files", || {
        sum(files.iter().flat_map(|f| file(f)).collect())
    });
    steps.step("tidy: crate headers", || sum(headers()));
    steps.step("tidy: dependencies have reasons", || sum(reasons()));
    steps.step("tidy: docs/errors.md is current", || {
        let page = std::fs::read_to_string(errors_page::path()).unwrap_or_default();
        if page == errors_page::text() {
            Ok(())
        } else {
            Err("it differs from the codes; run `cargo xtask fix`".into())
        }
    });
    steps.step("tidy: links in documents", || {
        sum(files.iter().flat_map(|f| links(f)).collect())
    });
    steps.end()
}

fn sum(wrong: Vec<String>) -> Done {
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("\n  {}", wrong.join("\n  ")))
    }
}

fn tracked() -> Result<Vec<PathBuf>, String> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root())
        .output()
        .map_err(|e| format!("git ls-files: {e}"))?;
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let files = names
        .split('\0')
        .filter(|n| !n.is_empty())
        .map(PathBuf::from);
    Ok(files.filter(|f| root().join(f).is_file()).collect())
}

fn file(path: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let shown = path.display();
    let full = root().join(path);
    let size = full.metadata().map(|m| m.len()).unwrap_or_default();
    if size > BYTES_MAX {
        wrong.push(format!("{shown}: {size} bytes; allowed are {BYTES_MAX}"));
    }
    // Inputs of fuzz targets are bytes.
    if path.starts_with("fuzz/corpus") {
        return wrong;
    }
    let Ok(text) = std::fs::read_to_string(&full) else {
        wrong.push(format!("{shown}: is not text"));
        return wrong;
    };
    if path.extension().is_some_and(|e| e == "rs") {
        let lines = text.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!("{shown}: {lines} lines; allowed are {LINES_MAX}"));
        }
        let stem = path
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or_default();
        if BANNED_MODULES.contains(&stem) {
            wrong.push(format!("{shown}: a module must not be named {stem}"));
        }
    }
    let source = path
        .extension()
        .is_some_and(|e| e == "rs" || e == "toml" || e == "proto");
    if source && let Some((n, _)) = text.lines().enumerate().find(|(_, l)| !l.is_ascii()) {
        wrong.push(format!("{shown}:{}: not ASCII", n + 1));
    }
    wrong
}

fn headers() -> Vec<String> {
    let mut wrong = Vec::new();
    let crates = std::fs::read_dir(root().join("crates"))
        .into_iter()
        .flatten()
        .flatten();
    for folder in crates
        .map(|e| e.path())
        .chain([root().join("sim"), root().join("xtask")])
    {
        let lib = folder.join("src/lib.rs");
        let main = folder.join("src/main.rs");
        let path = if lib.exists() { lib } else { main };
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let name = folder
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default()
            .to_owned();
        for word in ["Owns:", "Must never:", "Start reading at"] {
            if !text.contains(word) {
                wrong.push(format!("{name}: the crate header does not say '{word}'"));
            }
        }
        let forbids = text.contains("#![forbid(unsafe_code)]");
        if !forbids && !UNSAFE_CRATES.contains(&name.as_str()) {
            wrong.push(format!("{name}: does not forbid unsafe code"));
        }
    }
    wrong
}

fn reasons() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap_or_default();
    let rows = text
        .lines()
        .skip_while(|l| *l != "[workspace.dependencies]")
        .skip(1)
        .take_while(|l| !l.starts_with('['));
    rows.filter(|l| l.contains(" = ") && !l.starts_with("snowskin-") && !l.starts_with('#'))
        .filter(|l| !l.contains(" # "))
        .map(|l| format!("no reason stands beside: {l}"))
        .collect()
}

/// Relative links of Markdown files point to something.
fn links(path: &Path) -> Vec<String> {
    if path.extension().is_none_or(|e| e != "md") {
        return Vec::new();
    }
    let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    let folder = root()
        .join(path)
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or_default();
    let targets = text.split("](").skip(1).filter_map(|t| t.split(')').next());
    targets
        .map(|t| t.split('#').next().unwrap_or_default())
        .filter(|t| !t.is_empty() && !t.contains("://") && !t.contains(' '))
        .filter(|t| !folder.join(t).exists())
        .map(|t| format!("{}: the link to {t} leads nowhere", path.display()))
        .collect()
}
