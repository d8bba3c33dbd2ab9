//! The second command of the README: everything that must hold, from a clean clone.

use crate::steps::{Done, Steps, cargo, root};
use crate::{errors_page, python, tidy};
use std::path::PathBuf;
use std::process::Command;

const SIM_SEEDS: &str = "0..500";

/// Formatting, lints, tidy.
pub fn verify() -> Done {
    let mut steps = Steps::default();
    checks(&mut steps);
    steps.end()
}

/// True when the toolchain has this part; says so when not, since the check is then left out.
fn has(component: &str) -> bool {
    let found = cargo(&[component, "--version"])
        .output()
        .is_ok_and(|o| o.status.success());
    if !found {
        println!(
            "SKIPPED {component}: this toolchain does not have it; `rustup component add` brings it"
        );
    }
    found
}

fn checks(steps: &mut Steps) {
    if has("fmt") {
        steps.command("formatting", &mut cargo(&["fmt", "--all", "--check"]));
    }
    if has("clippy") {
        steps.command(
            "lints",
            &mut cargo(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--quiet",
                "--",
                "-D",
                "warnings",
            ]),
        );
    }
    steps.step("tidy", tidy::run);
}

/// Formats and writes generated pages.
pub fn fix() -> Done {
    let mut steps = Steps::default();
    steps.command("formatting", &mut cargo(&["fmt", "--all"]));
    steps.step("docs/errors.md", || {
        std::fs::write(errors_page::path(), errors_page::text()).map_err(|e| e.to_string())
    });
    steps.end()
}

fn target(profile: &str, name: &str) -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR")
        .map(PathBuf::from)
        .unwrap_or_else(|| root().join("target"));
    folder.join(profile).join(name)
}

/// Builds the simulator and runs it with the given options.
pub fn sim(options: &[String]) -> Done {
    let bugs = options.first().is_some_and(|o| o == "bugs") || options.iter().any(|o| o == "--bug");
    let binary = if bugs {
        known_bugs_sim()?
    } else {
        release_sim()?
    };
    let status = Command::new(binary)
        .args(options)
        .current_dir(root())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the simulator ended with {status}")),
        Err(error) => Err(format!("the simulator could not be started: {error}")),
    }
}

fn release_sim() -> Result<PathBuf, String> {
    build(&mut cargo(&[
        "build",
        "--release",
        "--quiet",
        "-p",
        "snowskin-sim",
    ]))?;
    Ok(target("release", "snowskin-sim"))
}

/// Unoptimised: the planted bugs show within a few seeds, so that building is what takes time.
fn known_bugs_sim() -> Result<PathBuf, String> {
    let folder = target("", "known_bugs");
    let mut command = cargo(&["build", "--quiet", "-p", "snowskin-sim"]);
    command
        .env("RUSTFLAGS", "--cfg known_bugs")
        .env("CARGO_TARGET_DIR", &folder);
    build(&mut command)?;
    Ok(folder.join("debug/snowskin-sim"))
}

fn build(command: &mut Command) -> Done {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the build ended with {status}")),
        Err(error) => Err(format!("cargo could not be started: {error}")),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The Python packages and their tests.
pub fn python() -> Done {
    let mut steps = Steps::default();
    steps.command(
        "release build",
        &mut cargo(&["build", "--release", "--quiet", "-p", "snowskin-cli"]),
    );
    python::test(&mut steps, &target("release", "snowskin"));
    steps.end()
}

/// All tests.
pub fn run(quick: bool) -> Done {
    let mut steps = Steps::default();
    checks(&mut steps);
    steps.command(
        "unit, property and engine tests",
        &mut cargo(&[
            "test",
            "--workspace",
            "--exclude",
            "snowskin-tests",
            "--quiet",
        ]),
    );
    if quick {
        return steps.end();
    }
    steps.command(
        "release build",
        &mut cargo(&[
            "build",
            "--release",
            "--quiet",
            "-p",
            "snowskin-cli",
            "-p",
            "snowskin-sim",
        ]),
    );
    steps.step("simulator: 500 seeds of 60 s", || {
        sim(&words(&format!("--seeds {SIM_SEEDS}")))
    });
    steps.step("simulator: same seed, same bytes", || sim(&words("meta")));
    steps.step("simulator: fixed scenarios", || sim(&words("scenario all")));
    steps.step("simulator: every planted bug is caught", || {
        sim(&words("bugs"))
    });
    let snowskin = target("release", "snowskin");
    steps.command(
        "end-to-end tests",
        cargo(&[
            "test",
            "--release",
            "-p",
            "snowskin-tests",
            "--",
            "--test-threads",
            "1",
        ])
        .env("SNOWSKIN_BIN", &snowskin),
    );
    python::test(&mut steps, &snowskin);
    steps.command(
        "main job: demo",
        Command::new(&snowskin).arg("demo").current_dir(root()),
    );
    steps.end()
}
