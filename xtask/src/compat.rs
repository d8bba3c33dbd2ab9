//! Compares our Python package with an installed one of the released project: the interface, and the
//! answers row by row.

use crate::steps::{Done, Steps, root};
use std::path::PathBuf;
use std::process::Command;

/// Libraries the released package is linked with, and the Debian package of each.
const LIBRARIES: &[(&str, &str)] = &[
    ("libibverbs.so.1", "libibverbs1"),
    ("librdmacm.so.1", "librdmacm1"),
    ("libnuma.so.1", "libnuma1"),
    ("liburing.so.2", "liburing2"),
];
const TEST_PACKAGES: &[&str] = &["pytest", "numpy", "aiohttp"];

/// What to compare.
pub struct Options {
    /// Interpreter that makes the environments.
    pub python: String,
    /// Requirement of the released package, or a wheel file.
    pub package: String,
    /// Only the released package: our own is not built yet.
    pub peer_only: bool,
}

/// Makes an environment with the released package, and one with our wheels when they are built; prints
/// the differences of their interfaces and runs the row tests in each.
pub fn run(options: &Options) -> Done {
    let missing = missing_libraries()?;
    if !missing.is_empty() {
        return Err(format!(
            "the released package needs {} of this machine; on Debian: apt-get install {}",
            names(&missing, |m| m.0),
            names(&missing, |m| m.1),
        ));
    }
    let mut steps = Steps::default();
    let peer = Environment::at("peer");
    let mut ready = false;
    steps.step("environment of the released package", || {
        peer.make(&options.python)?;
        let wanted: Vec<&str> = [options.package.as_str()]
            .into_iter()
            .chain(TEST_PACKAGES.iter().copied())
            .collect();
        peer.install(&wanted)?;
        ready = true;
        Ok(())
    });
    if ready {
        check(&mut steps, &peer, "the released package", &["--peer"]);
    }
    if !options.peer_only {
        ours(&mut steps, &options.python);
    }
    steps.end()
}

fn ours(steps: &mut Steps, python: &str) {
    let ours = Environment::at("ours");
    let mut ready = false;
    steps.step("environment of our package", || {
        let wheels = target().join("wheels");
        if !wheels.is_dir() {
            return Err(format!(
                "{} is not there: run `cargo xtask wheel`, or pass --peer-only",
                wheels.display()
            ));
        }
        ours.make(python)?;
        ours.install(TEST_PACKAGES)?;
        let wheels = wheels.to_string_lossy().into_owned();
        // From the folder only, and also when the version did not change.
        ours.install(&[
            "--no-index",
            "--no-deps",
            "--force-reinstall",
            "--find-links",
            &wheels,
            "snowskin",
            "snowskin-mooncake",
        ])?;
        ready = true;
        Ok(())
    });
    if ready {
        check(steps, &ours, "our package", &[]);
    }
}

fn check(steps: &mut Steps, environment: &Environment, name: &str, options: &[&str]) {
    let fixture = tests().join("fixtures/api.json");
    let found = environment.folder.join("api.json");
    steps.step(&format!("interface of {name}"), || {
        let told = environment
            .python()
            .arg(tests().join("fixtures/introspect.py"))
            .output()
            .map_err(|e| format!("introspect.py: {e}"))?;
        if !told.status.success() {
            return Err(String::from_utf8_lossy(&told.stderr).into_owned());
        }
        std::fs::write(&found, &told.stdout).map_err(|e| format!("{}: {e}", found.display()))?;
        environment.run(&[tests().join("surface.py"), fixture.clone(), found.clone()])
    });
    steps.command(
        &format!("rows against {name}"),
        environment
            .python()
            .args(["-m", "pytest", "-q"])
            .args(options)
            .arg(tests()),
    );
}

fn tests() -> PathBuf {
    root().join("python").join("tests")
}

/// A virtual environment below the target folder.
struct Environment {
    folder: PathBuf,
}

impl Environment {
    fn at(name: &str) -> Self {
        Self {
            folder: target().join("compat").join(name),
        }
    }

    fn program(&self) -> PathBuf {
        self.folder.join("bin").join("python")
    }

    fn python(&self) -> Command {
        let mut command = Command::new(self.program());
        command.current_dir(tests());
        command
    }

    fn make(&self, python: &str) -> Done {
        if self.program().exists() {
            return Ok(());
        }
        done(
            "python -m venv",
            Command::new(python).args(["-m", "venv"]).arg(&self.folder),
        )
    }

    fn install(&self, wanted: &[&str]) -> Done {
        done(
            "pip install",
            self.python()
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                ])
                .args(wanted),
        )
    }

    fn run(&self, arguments: &[PathBuf]) -> Done {
        done("python", self.python().args(arguments))
    }
}

fn done(what: &str, command: &mut Command) -> Done {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what} ended with {status}")),
        Err(error) => Err(format!("{what} could not be started: {error}")),
    }
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map(PathBuf::from)
        .unwrap_or_else(|| root().join("target"))
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
