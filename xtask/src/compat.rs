//! Compares our Python package with an installed one of the released project: the interface, and the
//! answers row by row.

use crate::python::{self, TESTS, Venv, done, target};
use crate::steps::{Done, Steps, cargo, root};
use std::path::PathBuf;
use std::process::Command;

/// Libraries the released package is linked with, and the Debian package of each.
const LIBRARIES: &[(&str, &str)] = &[
    ("libibverbs.so.1", "libibverbs1"),
    ("librdmacm.so.1", "librdmacm1"),
    ("libnuma.so.1", "libnuma1"),
    ("liburing.so.2", "liburing2"),
];

/// Prints the differences of the interfaces and runs the row tests: against the released package in an
/// environment made for it, and against our own as this tree builds it, unless `peer_only`.
///
/// `package` is a requirement of pip or a wheel file.
///
/// # Errors
/// When a step failed, or the machine lacks libraries of the released package.
pub fn run(package: &str, peer_only: bool) -> Done {
    let missing = missing_libraries()?;
    if !missing.is_empty() {
        return Err(format!(
            "the released package needs {} on this machine; on Debian: apt-get install {}",
            names(&missing, |m| m.0),
            names(&missing, |m| m.1),
        ));
    }
    let mut steps = Steps::default();
    let peer = Venv::below("venv-released");
    let mut ready = false;
    steps.step("environment of the released package", || {
        peer.make(&[TESTS, &[package]])?;
        ready = true;
        Ok(())
    });
    if ready {
        check(&mut steps, &peer, "the released package", &["--peer"]);
    }
    if !peer_only {
        steps.command(
            "release build",
            &mut cargo(&["build", "--release", "--quiet", "-p", "snowskin-cli"]),
        );
        if let Some(ours) = python::installed(&mut steps) {
            check(&mut steps, &ours, "our package", &[]);
        }
    }
    steps.end()
}

fn check(steps: &mut Steps, venv: &Venv, name: &str, options: &[&str]) {
    let fixture = tests().join("fixtures/api.json");
    let found = target().join("tmp").join("api.json");
    steps.step(&format!("interface of {name}"), || {
        let told = in_tests(venv)
            .arg(tests().join("fixtures/introspect.py"))
            .output()
            .map_err(|e| format!("introspect.py: {e}"))?;
        if !told.status.success() {
            return Err(String::from_utf8_lossy(&told.stderr).into_owned());
        }
        let write = |e: std::io::Error| format!("{}: {e}", found.display());
        std::fs::create_dir_all(target().join("tmp")).map_err(write)?;
        std::fs::write(&found, &told.stdout).map_err(write)?;
        let mut compare = in_tests(venv);
        compare.args([&tests().join("surface.py"), &fixture, &found]);
        done("surface.py", &mut compare)
    });
    steps.command(
        &format!("rows against {name}"),
        in_tests(venv)
            .args(["-m", "pytest", "-q", "--tb=short"])
            .args(options),
    );
}

fn tests() -> PathBuf {
    root().join("python/tests")
}

fn in_tests(venv: &Venv) -> Command {
    let mut command = venv.command("python");
    command.current_dir(tests());
    command
}

fn missing_libraries() -> Result<Vec<(&'static str, &'static str)>, String> {
    let listed = ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"]
        .iter()
        .find_map(|program| Command::new(program).arg("-p").output().ok())
        .ok_or("ldconfig, which lists the machine's libraries, could not be started")?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    Ok(LIBRARIES
        .iter()
        .copied()
        .filter(|(library, _)| !text.contains(library))
        .collect())
}

fn names<'a>(
    missing: &'a [(&'static str, &'static str)],
    pick: impl Fn(&'a (&'static str, &'static str)) -> &'static str,
) -> String {
    missing.iter().map(pick).collect::<Vec<_>>().join(" ")
}
