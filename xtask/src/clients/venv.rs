//! The environment of the real clients: their released packages, pinned, on a machine without CUDA.
//!
//! Made once and resumable: each stage leaves a mark that holds its pins, and is done again when they change.

use crate::steps::{Done, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python that the pinned packages are built for.
const PYTHON: &str = "python3.11";
/// The package whose place ours takes; only for reference runs.
pub const PEER: &str = "mooncake-transfer-engine-non-cuda==0.3.13.post1";
/// The only two CUDA libraries that must be real ones, and torch itself.
const TORCH: &[&str] = &[
    "torch==2.14.0",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cupti==13.0.85",
];
/// Needed to import torch; the versions are those of requirements.txt.
const LMCACHE: &[&str] = &["lmcache==0.5.6", "numpy==2.2.6", "setuptools==80.9.0"];
const SGLANG: &[&str] = &["sglang==0.5.23", "checkpoint-engine==0.4.2"];
const TRITON: &[&str] = &["triton==3.8.0"];
const VLLM: &str = "vllm==0.33.0";
const ASCEND: &str = "vllm-ascend==0.23.0";
/// vllm-ascend is pure Python where we use it, but released for this version only.
const ASCEND_PYTHON: &str = "3.12";

/// The packages whose versions a result names.
pub const NAMED: &[&str] = &[
    "sglang",
    "lmcache",
    "vllm",
    "checkpoint-engine",
    "torch",
    "numpy",
];
/// vllm-ascend lies outside the environment; its version is its pin.
pub const NAMED_ASCEND: &str = ASCEND;

/// A virtual environment with the consumers in it.
pub struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// The folder that SNOWSKIN_CLIENTS_VENV names, or target/clients-venv.
    pub fn locate() -> Venv {
        let folder = std::env::var_os("SNOWSKIN_CLIENTS_VENV")
            .map_or_else(|| root().join("target/clients-venv"), PathBuf::from);
        Venv { folder }
    }

    /// An executable of the environment.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// The sources of vllm-ascend.
    pub fn ascend(&self) -> PathBuf {
        self.folder.join("vllm-ascend")
    }

    /// What the loader needs to find, for LD_LIBRARY_PATH.
    pub fn libraries(&self) -> String {
        format!(
            "{}:{}",
            self.stand_ins().display(),
            self.packages().join("nvidia/cu13/lib").display()
        )
    }

    fn stand_ins(&self) -> PathBuf {
        self.folder.join("stand-ins")
    }

    fn packages(&self) -> PathBuf {
        self.folder.join("lib").join(PYTHON).join("site-packages")
    }

    fn python(&self) -> Command {
        let mut command = Command::new(self.program("python"));
        command.env("LD_LIBRARY_PATH", self.libraries());
        command
    }

    /// Makes what is missing.
    pub fn make(&self) -> Done {
        let stages: [Stage; 7] = [
            ("environment", PYTHON.to_owned(), Venv::create),
            ("torch", TORCH.join(" "), Venv::torch),
            ("imports", requirements()?, Venv::imports),
            ("lmcache", LMCACHE.join(" "), Venv::lmcache),
            ("sglang", [SGLANG, TRITON].concat().join(" "), Venv::sglang),
            ("vllm", VLLM.to_owned(), Venv::vllm),
            ("vllm-ascend", ASCEND.to_owned(), Venv::vllm_ascend),
        ];
        let missing: Vec<&Stage> = stages.iter().filter(|s| !self.done(s)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        println!(
            "clients: making {} (in all about 1.3 GB to download, 4 GB on disk, 6 minutes); missing: {}",
            self.folder.display(),
            missing.iter().map(|s| s.0).collect::<Vec<_>>().join(", ")
        );
        for stage in missing {
            println!("clients: {}", stage.0);
            (stage.2)(self)?;
            let mark = self.mark(stage.0);
            std::fs::write(&mark, &stage.1).map_err(|e| format!("{}: {e}", mark.display()))?;
        }
        Ok(())
    }

    fn mark(&self, stage: &str) -> PathBuf {
        self.folder.join(format!(".made-{stage}"))
    }

    fn done(&self, stage: &Stage) -> bool {
        std::fs::read_to_string(self.mark(stage.0)).is_ok_and(|pins| pins == stage.1)
    }

    fn create(&self) -> Done {
        run(
            Command::new(PYTHON).args(["-m", "venv"]).arg(&self.folder),
            &format!("{PYTHON} with its venv module (Debian: python3-venv) is needed"),
        )
    }

    fn torch(&self) -> Done {
        self.install(&["--no-deps"], TORCH)?;
        let script = root().join("python/clients/stand_ins.py");
        run(
            Command::new(self.program("python"))
                .arg(script)
                .arg(self.packages().join("torch/lib"))
                .arg(self.stand_ins()),
            "building stand-ins for the CUDA libraries needs gcc and readelf",
        )
    }

    fn imports(&self) -> Done {
        let list = root().join("python/clients/requirements.txt");
        self.install(&["--no-deps"], &["-r", &list.to_string_lossy()])
    }

    fn lmcache(&self) -> Done {
        self.install(&["--no-deps"], LMCACHE)?;
        run(
            self.python()
                .args(["-c", "import torch, numpy; torch.ones(2) + 1"]),
            "torch does not load with the stand-ins",
        )
    }

    fn sglang(&self) -> Done {
        self.install(&["--no-deps"], SGLANG)?;
        self.install(&["--no-deps"], TRITON)
    }

    /// All of vLLM but its compiled parts, which need CUDA.
    fn vllm(&self) -> Done {
        self.unpack(VLLM, &[], "vllm-", &self.packages(), ["without", ".so"])
    }

    fn vllm_ascend(&self) -> Done {
        let other = ["--only-binary=:all:", "--python-version", ASCEND_PYTHON];
        self.unpack(
            ASCEND,
            &other,
            "vllm_ascend-",
            &self.ascend(),
            ["only", ".py"],
        )
    }

    fn unpack(
        &self,
        pin: &str,
        options: &[&str],
        prefix: &str,
        out: &Path,
        rule: [&str; 2],
    ) -> Done {
        let wheels = self.folder.join("wheels").join(prefix);
        let folder = wheels.to_string_lossy();
        let mut arguments = vec!["download", "--no-deps", "-q", "-d", &folder];
        arguments.extend_from_slice(options);
        self.pip(&arguments, &[pin])?;
        run(
            Command::new(self.program("python"))
                .arg(root().join("python/clients/unpack.py"))
                .arg(&wheels)
                .arg(prefix)
                .arg(out)
                .args(rule),
            "unpacking",
        )?;
        std::fs::remove_dir_all(&wheels).map_err(|e| format!("{}: {e}", wheels.display()))
    }

    fn install(&self, options: &[&str], pins: &[&str]) -> Done {
        let mut arguments = vec!["install", "-q", "--no-compile"];
        arguments.extend_from_slice(options);
        self.pip(&arguments, pins)
    }

    fn pip(&self, arguments: &[&str], pins: &[&str]) -> Done {
        let output = Command::new(self.program("python"))
            .args(["-m", "pip", "--disable-pip-version-check", "--no-input"])
            .args(arguments)
            .args(pins)
            .output()
            .map_err(|e| format!("{}: {e}", self.program("python").display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok(());
        }
        if let Some(rest) = said.split("No matching distribution found for ").nth(1) {
            let gone = rest.lines().next().unwrap_or_default();
            return Err(format!(
                "the registry has no {gone} any more; choose another version on purpose, in \
                 xtask/src/clients/venv.rs or python/clients/requirements.txt, and run all clients again"
            ));
        }
        let tail: Vec<&str> = said.lines().rev().take(5).collect();
        Err(format!(
            "pip {} {}: {}",
            arguments.first().unwrap_or(&""),
            pins.join(" "),
            tail.into_iter().rev().collect::<Vec<_>>().join("\n")
        ))
    }

    /// Puts the released package under the import name, in place of ours.
    pub fn use_peer(&self) -> Done {
        self.clear()?;
        self.install(&["--no-deps"], &[PEER])
    }

    /// Puts our wheels under the import name, in place of the released package.
    pub fn use_ours(&self, wheels: &[PathBuf]) -> Done {
        self.clear()?;
        let paths: Vec<String> = wheels
            .iter()
            .map(|w| w.to_string_lossy().into_owned())
            .collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        self.install(&["--no-deps", "--force-reinstall"], &paths)
    }

    fn clear(&self) -> Done {
        let peer = PEER.split("==").next().unwrap_or(PEER);
        self.pip(
            &["uninstall", "-q", "-y"],
            &[peer, "snowskin-mooncake", "snowskin"],
        )
    }

    /// The installed version of a package, or "none".
    pub fn version(&self, package: &str) -> String {
        self.python()
            .args([
                "-c",
                "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))",
            ])
            .arg(package)
            .output()
            .ok()
            .filter(|o| o.status.success())
            .map_or_else(
                || "none".to_owned(),
                |o| String::from_utf8_lossy(&o.stdout).trim().to_owned(),
            )
    }
}

/// Name, pins, and what makes it.
type Stage = (&'static str, String, fn(&Venv) -> Done);

fn requirements() -> Result<String, String> {
    let path = root().join("python/clients/requirements.txt");
    std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}

fn run(command: &mut Command, hint: &str) -> Done {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!(
            "{hint}: {:?} ended with {status}",
            command.get_program()
        )),
        Err(error) => Err(format!("{hint}: {:?}: {error}", command.get_program())),
    }
}
