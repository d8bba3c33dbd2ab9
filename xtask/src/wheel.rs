//! The wheels that are given to others: linked against an old C library, with the `snowskin` program inside.

use crate::python::{BUILDERS, LINKER, Venv, done, emptied, target, wheels};
use crate::steps::{Done, Steps, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The C library that the wheels must run with.
const PLATFORM: &str = "manylinux_2_28";
/// The interpreter for which a wheel of its own is built; later ones share one.
const OLDEST: &str = "3.10";

/// Builds all wheels, checks them, and puts them into `target/wheels` when all are good.
pub fn run() -> Done {
    let venv = Venv::locate();
    let stage = target().join("wheel-stage");
    let out = stage.join("wheels");
    let mut steps = Steps::default();
    steps.step("environment", || {
        venv.make(&[BUILDERS, LINKER, &["pytest>=8"]])?;
        emptied(&stage)?;
        emptied(&out)
    });
    let triple = triple();
    steps.step("the program", || {
        let triple = triple.as_deref().map_err(String::clone)?;
        program(&venv, triple, &stage)
    });
    steps.step("snowskin, for CPython 3.11 and later", || {
        let triple = triple.as_deref().map_err(String::clone)?;
        let package = staged(&stage)?;
        let python = venv.program("python");
        maturin(&venv, triple, &out)
            .arg("--interpreter")
            .arg(python)
            .current_dir(package)
            .status()
            .map_err(|e| format!("maturin could not be started: {e}"))
            .and_then(ended)
    });
    match oldest() {
        Some(python) => steps.step("snowskin, for CPython 3.10", || {
            let triple = triple.as_deref().map_err(String::clone)?;
            let package = staged(&stage)?;
            maturin(&venv, triple, &out)
                .args(["--no-default-features", "--interpreter"])
                .arg(python)
                .current_dir(package)
                .status()
                .map_err(|e| format!("maturin could not be started: {e}"))
                .and_then(ended)
        }),
        None => println!(
            "SKIPPED the wheel for CPython {OLDEST}: there is no python{OLDEST} here; \
             PYTHON310 may name one"
        ),
    }
    steps.step("snowskin-mooncake", || venv.pure_wheel(&out));
    steps.command(
        "checks of the wheels",
        venv.command("python")
            .args(["-m", "pytest", "-q", "-s", "test_wheels.py"])
            .env("WHEELS_UNDER_TEST", &out)
            .current_dir(root().join("python/tests")),
    );
    steps.end()?;
    let given = target().join("wheels");
    emptied(&given)?;
    for wheel in wheels(&out)? {
        let there = given.join(wheel.file_name().unwrap_or_default());
        let bytes =
            std::fs::copy(&wheel, &there).map_err(|e| format!("{}: {e}", there.display()))?;
        println!("{:.1} MB {}", bytes as f64 / 1e6, there.display());
    }
    Ok(())
}

fn ended(status: std::process::ExitStatus) -> Done {
    match status.success() {
        true => Ok(()),
        false => Err(format!("maturin ended with {status}")),
    }
}

fn maturin(venv: &Venv, triple: &str, out: &Path) -> Command {
    let mut command = venv.command("maturin");
    command
        .args(["build", "--quiet", "--profile", "dist", "--zig"])
        .args(["--compatibility", PLATFORM, "--target", triple, "--out"])
        .arg(out)
        .env("CARGO_TARGET_DIR", target())
        .env("RUSTFLAGS", without_machine_paths());
    command
}

/// Flags that keep the places of sources on this machine out of what is built.
fn without_machine_paths() -> String {
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| home.map(|home| home.join(".cargo")));
    let given = std::env::var("RUSTFLAGS").ok();
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let mut flags: Vec<String> = given.into_iter().collect();
    flags.push(remap(&root(), "snowskin"));
    flags.extend(cargo.map(|cargo| remap(&cargo, "cargo")));
    flags.join(" ")
}

/// Builds the program, as a wheel of its own, and unpacks that.
fn program(venv: &Venv, triple: &str, stage: &Path) -> Done {
    let packed = stage.join("program");
    let status = maturin(venv, triple, &packed)
        .args(["--bindings", "bin", "--strip", "--manifest-path"])
        .arg(root().join("crates/cli/Cargo.toml"))
        .current_dir(root())
        .status();
    status
        .map_err(|e| format!("maturin could not be started: {e}"))
        .and_then(ended)?;
    let [wheel] = &wheels(&packed)?[..] else {
        return Err(format!("not one wheel in {}", packed.display()));
    };
    done(
        "unpacking the program",
        venv.command("python")
            .args(["-m", "zipfile", "-e"])
            .args([wheel, &packed]),
    )
}

/// A copy of the package's sources with the program in it.
fn staged(stage: &Path) -> Result<PathBuf, String> {
    let package = stage.join("snowskin");
    if package.exists() {
        return Ok(package);
    }
    let source = root().join("python/snowskin");
    copy(&source.join("src"), &package.join("src"))?;
    std::fs::copy(source.join("README.md"), package.join("README.md"))
        .map_err(|e| format!("README.md: {e}"))?;
    let read = std::fs::read_to_string(source.join("pyproject.toml"));
    let project = read.map_err(|e| format!("pyproject.toml: {e}"))?;
    let native = root().join("python/native/Cargo.toml");
    let project = project.replace("../native/Cargo.toml", &native.to_string_lossy());
    std::fs::write(package.join("pyproject.toml"), project)
        .map_err(|e| format!("{}: {e}", package.display()))?;
    let program = find(&stage.join("program"), "snowskin")
        .ok_or_else(|| "the program's wheel holds no program".to_owned())?;
    let folder = package.join("src/snowskin/bin");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let there = folder.join("snowskin");
    std::fs::copy(&program, &there).map_err(|e| format!("{}: {e}", program.display()))?;
    done("chmod", Command::new("chmod").arg("755").arg(&there))?;
    Ok(package)
}

fn copy(from: &Path, to: &Path) -> Done {
    std::fs::create_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
    let entries = std::fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))?;
    for entry in entries {
        let entry = entry.map_err(|e| format!("{}: {e}", from.display()))?;
        let (path, there) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            // Neither compiled files nor a program of an earlier build.
            if entry.file_name() != "__pycache__" && entry.file_name() != "bin" {
                copy(&path, &there)?;
            }
        } else if path.extension().is_none_or(|e| e != "so") {
            std::fs::copy(&path, &there).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}

/// A file of this name below a folder.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let mut folders = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            folders.push(path);
        } else if entry.file_name() == name {
            return Some(path);
        }
    }
    folders.iter().find_map(|folder| find(folder, name))
}

/// The machine that cargo builds for.
fn triple() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("-vV")
        .output()
        .map_err(|e| format!("rustc: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// An interpreter of the oldest version.
fn oldest() -> Option<PathBuf> {
    let named = std::env::var_os("PYTHON310").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let managed = home
        .and_then(|home| std::fs::read_dir(home.join(".pyenv/versions")).ok())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin/python3.10"));
    named
        .into_iter()
        .chain([PathBuf::from(format!("python{OLDEST}"))])
        .chain(managed)
        .find(|python| {
            let version = Command::new(python)
                .args(["-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
                .output();
            version.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).trim() == OLDEST)
        })
}
