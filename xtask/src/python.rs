//! The environment in which the Python package is built and tested, and the tests in it.

use crate::steps::{Done, Steps, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What builds the wheels.
pub const BUILDERS: &[&str] = &["maturin==1.16.0", "hatchling==1.33.0"];
/// What links against an old C library.
pub const LINKER: &[&str] = &["ziglang==0.17.1"];
/// What the tests need.
pub const TESTS: &[&str] = &["pytest>=8", "pytest-asyncio>=1", "numpy", "aiohttp>=3.9"];

/// Where cargo puts what it builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map(PathBuf::from)
        .unwrap_or_else(|| root().join("target"))
}

/// Runs a command; its failure is a sentence.
pub fn done(what: &str, command: &mut Command) -> Done {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what} ended with {status}")),
        Err(error) => Err(format!("{what} could not be started: {error}")),
    }
}

/// The virtual environment below the target folder.
pub struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// At its place; [`Venv::make`] makes it.
    pub fn locate() -> Self {
        Venv::below("venv")
    }

    /// Another one below the target folder.
    pub fn below(name: &str) -> Self {
        Venv {
            folder: target().join(name),
        }
    }

    /// A program in it.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// A command that finds the environment's programs first.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.program(name));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = vec![self.folder.join("bin")];
        folders.extend(std::env::split_paths(&path));
        if let Ok(path) = std::env::join_paths(folders) {
            command.env("PATH", path);
        }
        command.env("VIRTUAL_ENV", &self.folder);
        command
    }

    /// Makes it, unless it is there, and installs what is missing.
    ///
    /// # Errors
    /// Without `python3` and its module venv, or when pip fails.
    pub fn make(&self, wanted: &[&[&str]]) -> Done {
        if !self.program("python").exists() {
            done(
                "python3 -m venv",
                Command::new("python3")
                    .args(["-m", "venv"])
                    .arg(&self.folder),
            )?;
        }
        self.pip(
            &["install"],
            &wanted
                .iter()
                .copied()
                .flatten()
                .copied()
                .collect::<Vec<_>>(),
        )
    }

    /// What the native module is built without: the interface that is stable from 3.11 on is not there
    /// in an older interpreter.
    fn features(&self) -> &'static [&'static str] {
        let asked = self
            .command("python")
            .args(["-c", "import sys; print(sys.version_info[1])"])
            .output();
        let minor = asked.ok().and_then(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.trim().parse::<u32>().ok()
        });
        match minor {
            Some(0..11) => &["--no-default-features"],
            _ => &[],
        }
    }

    /// Runs pip quietly.
    ///
    /// # Errors
    /// When it fails.
    pub fn pip(&self, verb: &[&str], arguments: &[&str]) -> Done {
        done(
            "pip",
            self.command("python")
                .args(["-m", "pip", "--disable-pip-version-check", "--quiet"])
                .args(verb)
                .args(arguments),
        )
    }

    /// Installs wheels in place of those that are there.
    ///
    /// # Errors
    /// When pip fails.
    pub fn install(&self, wheels: &[PathBuf]) -> Done {
        let wheels: Vec<String> = wheels
            .iter()
            .map(|wheel| wheel.to_string_lossy().into_owned())
            .collect();
        let wheels: Vec<&str> = wheels.iter().map(String::as_str).collect();
        self.pip(
            &["install", "--force-reinstall", "--no-deps", "--no-index"],
            &wheels,
        )
    }

    /// Builds the wheel of the pure package into a folder.
    ///
    /// # Errors
    /// When pip fails.
    pub fn pure_wheel(&self, out: &Path) -> Done {
        let source = root().join("python/mooncake");
        self.pip(
            &["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir"],
            &[&out.to_string_lossy(), &source.to_string_lossy()],
        )
    }
}

/// The wheels in a folder.
///
/// # Errors
/// When it cannot be read.
pub fn wheels(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut wheels: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "whl"))
        .collect();
    wheels.sort();
    Ok(wheels)
}

/// Makes a folder that is empty.
///
/// # Errors
/// When that fails.
pub fn emptied(folder: &Path) -> Done {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(failed)?;
    }
    std::fs::create_dir_all(folder).map_err(failed)
}

/// Builds both packages from the release profile and installs them; the environment when that worked.
pub fn installed(steps: &mut Steps) -> Option<Venv> {
    let venv = Venv::locate();
    let built = target().join("wheels-dev");
    let mut ready = false;
    steps.step("python: environment", || venv.make(&[BUILDERS, TESTS]));
    steps.step("python: both packages", || {
        emptied(&built)?;
        done(
            "maturin",
            venv.command("maturin")
                .args(["build", "--quiet", "--profile", "release"])
                .args(venv.features())
                // For this machine: what other machines need is checked by `cargo xtask wheel`.
                .args(["--auditwheel", "skip", "--interpreter"])
                .arg(venv.program("python"))
                .arg("--out")
                .arg(&built)
                .env("CARGO_TARGET_DIR", target())
                .current_dir(root().join("python/snowskin")),
        )?;
        venv.pure_wheel(&built)?;
        venv.install(&wheels(&built)?)?;
        ready = true;
        Ok(())
    });
    ready.then_some(venv)
}

/// Installs both packages and runs the tests of the tree. The `snowskin` program is the one of the
/// release build.
pub fn test(steps: &mut Steps, snowskin: &Path) {
    if let Some(venv) = installed(steps) {
        steps.command(
            "python: tests",
            venv.command("python")
                .args(["-m", "pytest", "-q", "--tb=short"])
                .env("SNOWSKIN_BIN", snowskin)
                .current_dir(root().join("python/tests")),
        );
    }
}
