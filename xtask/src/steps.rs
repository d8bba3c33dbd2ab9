//! Runs commands one after the other and says how each ended.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The outcome of a chore: nothing, or one sentence that says what is wrong.
pub type Done = Result<(), String>;

/// The folder of the workspace.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// A cargo command in the workspace.
pub fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root());
    command
}

/// A list of steps, of which every one runs even when one before it failed.
#[derive(Default)]
pub struct Steps {
    passed: usize,
    failed: Vec<String>,
}

impl Steps {
    /// Runs a command as one step.
    pub fn command(&mut self, name: &str, command: &mut Command) {
        self.step(name, || match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("ended with {status}")),
            Err(error) => Err(format!("could not be started: {error}")),
        });
    }

    /// Runs a closure as one step.
    pub fn step(&mut self, name: &str, run: impl FnOnce() -> Done) {
        println!("==> {name}");
        let start = Instant::now();
        let done = run();
        let seconds = start.elapsed().as_secs_f64();
        match done {
            Ok(()) => {
                println!("<== {name}: passed in {seconds:.1} s");
                self.passed += 1;
            }
            Err(message) => {
                println!("<== {name}: FAILED in {seconds:.1} s: {message}");
                self.failed.push(name.to_owned());
            }
        }
    }

    /// Sums up.
    pub fn end(self) -> Done {
        println!(
            "steps: {} passed, {} failed",
            self.passed,
            self.failed.len()
        );
        if self.failed.is_empty() {
            Ok(())
        } else {
            Err(format!("failed: {}", self.failed.join(", ")))
        }
    }
}
