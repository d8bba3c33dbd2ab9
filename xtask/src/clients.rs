//! The consumers' own, unmodified classes against our servers: `cargo xtask clients`.
//!
//! Every harness is a script that imports a released package (python/clients, and the reference scripts of ../shared/clients
//! where they are there) and drives it on a CPU. Results go into docs/compatibility.md by hand: with versions, date, commit.

mod services;
mod venv;

use crate::steps::{Done, Steps, root};
use services::{Services, free_port};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use venv::Venv;

/// What `cargo xtask clients` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Run with the released package that ours takes the place of: proves the scripts, not us
    #[arg(long)]
    reference: bool,
    /// Only make the environment
    #[arg(long)]
    prepare: bool,
    /// Only these harnesses (see --list)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// List the harnesses
    #[arg(long)]
    list: bool,
    /// Keep the package that is installed in the environment
    #[arg(long)]
    installed: bool,
}

/// Where a script lies.
#[derive(Clone, Copy)]
enum Script {
    /// python/clients
    Ours(&'static str),
    /// ../shared/clients; skipped where that folder is missing
    Shared(&'static str),
    /// A module of an installed package
    Module(&'static str),
}

/// How a script is run.
#[derive(Clone, Copy)]
enum Shape {
    /// One process with these arguments
    One(&'static [&'static str]),
    /// The first process says READY, the second does its part, then the first is told to end
    Two(&'static [&'static str], &'static [&'static str]),
}

struct Harness {
    name: &'static str,
    /// The consumer's own classes that it drives
    classes: &'static str,
    script: Script,
    shape: Shape,
    /// The caches lie in the memory of a device of this family, which only its (pretended) driver reaches
    device: Option<&'static str>,
}

/// Longest time of one process.
const PATIENCE: Duration = Duration::from_secs(300);

const HARNESSES: &[Harness] = &[
    Harness {
        name: "te_check",
        classes: "the transfer engine's own interface",
        script: Script::Shared("te_check.py"),
        shape: Shape::One(&[]),
        device: None,
    },
    Harness {
        name: "checkpoint_engine",
        classes: "checkpoint-engine P2PStore",
        script: Script::Ours("checkpoint_engine_p2p.py"),
        shape: Shape::One(&[]),
        device: None,
    },
    Harness {
        name: "checkpoint_engine_device",
        classes: "the same, device memory",
        script: Script::Ours("checkpoint_engine_p2p.py"),
        shape: Shape::One(&[]),
        device: Some("cuda"),
    },
    Harness {
        name: "lmcache_store",
        classes: "LMCache MooncakestoreConnector, both metadata modes",
        script: Script::Shared("lmcache_store.py"),
        shape: Shape::One(&[]),
        device: None,
    },
    Harness {
        name: "lmcache_lost",
        classes: "LMCache MooncakestoreConnector, documented names, master killed",
        script: Script::Ours("lmcache_lost.py"),
        shape: Shape::One(&[]),
        device: None,
    },
    Harness {
        name: "lmcache_te",
        classes: "LMCache mooncake_te transfer channel",
        script: Script::Ours("lmcache_te.py"),
        shape: Shape::One(&[]),
        device: None,
    },
    Harness {
        name: "sglang_test",
        classes: "SGLang MooncakeStore, its shipped test",
        script: Script::Module("sglang.srt.mem_cache.storage.mooncake_store.test_mooncake_store"),
        shape: Shape::One(&[]),
        device: None,
    },
    Harness {
        name: "sglang_more",
        classes: "SGLang HiCache v2 pools, direct linker, embedding store, engine wrapper",
        script: Script::Shared("sglang_more.py"),
        shape: Shape::One(&[]),
        device: None,
    },
    Harness {
        name: "sglang_dummy",
        classes: "SGLang MooncakeStore, stand-alone storage (thin client)",
        script: Script::Ours("sglang_dummy.py"),
        shape: Shape::One(&[]),
        device: None,
    },
    Harness {
        name: "sglang_pd",
        classes: "SGLang MooncakeKVManager, sender, receiver, bootstrap server",
        script: Script::Ours("sglang_pd.py"),
        shape: Shape::Two(&["prefill", "1"], &["decode", "1"]),
        device: None,
    },
    Harness {
        name: "sglang_pd_device",
        classes: "the same, device memory",
        script: Script::Ours("sglang_pd.py"),
        shape: Shape::Two(&["prefill", "2"], &["decode", "2"]),
        device: Some("cuda"),
    },
    Harness {
        name: "vllm_store_dense",
        classes: "vLLM MooncakeStoreWorker, full attention",
        script: Script::Shared("vllm_store.py"),
        shape: Shape::Two(&["save", "dense", "1"], &["load", "dense", "1"]),
        device: None,
    },
    Harness {
        name: "vllm_store_hybrid",
        classes: "vLLM MooncakeStoreWorker, full attention and sliding window",
        script: Script::Shared("vllm_store.py"),
        shape: Shape::Two(&["save", "hybrid", "1"], &["load", "hybrid", "1"]),
        device: None,
    },
    Harness {
        name: "vllm_p2p",
        classes: "vLLM MooncakeConnectorWorker, prefill and decode",
        script: Script::Ours("vllm_p2p.py"),
        shape: Shape::Two(&["prefill", "1"], &["decode", "1"]),
        device: None,
    },
    Harness {
        name: "vllm_p2p_device",
        classes: "the same, device memory",
        script: Script::Ours("vllm_p2p.py"),
        shape: Shape::Two(&["prefill", "2"], &["decode", "2"]),
        device: Some("cuda"),
    },
    Harness {
        name: "vllm_ec",
        classes: "vLLM MooncakeEmbeddingStoreClient, MooncakeTransfer (encoder outputs)",
        script: Script::Ours("vllm_ec.py"),
        shape: Shape::One(&[]),
        device: None,
    },
    Harness {
        name: "ascend",
        classes: "vllm-ascend MooncakeBackend, PoolKey",
        script: Script::Ours("ascend.py"),
        shape: Shape::Two(&["put", "1"], &["get", "1"]),
        device: None,
    },
    Harness {
        name: "ascend_device",
        classes: "the same, device memory",
        script: Script::Ours("ascend.py"),
        shape: Shape::Two(&["put", "2"], &["get", "2"]),
        device: Some("ascend"),
    },
];

/// Makes the environment, puts the package to be checked into it, and runs the harnesses one after the other.
pub fn run(options: &Options) -> Done {
    if options.list {
        for harness in HARNESSES {
            println!("{:<20} {}", harness.name, harness.classes);
        }
        return Ok(());
    }
    if let Some(unknown) = options
        .only
        .iter()
        .find(|name| !HARNESSES.iter().any(|h| h.name == **name))
    {
        let known: Vec<&str> = HARNESSES.iter().map(|h| h.name).collect();
        return Err(format!(
            "no harness {unknown}; there are {}",
            known.join(", ")
        ));
    }
    let venv = Venv::locate();
    venv.make()?;
    if options.prepare {
        return Ok(());
    }
    if options.reference {
        venv.use_peer()?;
    } else if !options.installed {
        venv.use_ours(&wheels()?)?;
    }
    let logs = root().join("target/clients");
    std::fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
    let mut steps = Steps::default();
    let mut rows = Vec::new();
    for harness in HARNESSES {
        if !options.only.is_empty() && !options.only.iter().any(|n| n == harness.name) {
            continue;
        }
        let start = Instant::now();
        let mut result = "not run";
        if let Some(why) = harness.missing(options.reference) {
            println!("=== {}: skipped: {why}", harness.name);
        } else {
            steps.step(harness.name, || {
                let done = harness.run(&venv, &logs, options.reference);
                result = if done.is_ok() { "passed" } else { "FAILED" };
                done
            });
        }
        let seconds = start.elapsed().as_secs();
        rows.push(format!(
            "| {} | {} | {result} | {seconds} s |",
            harness.name, harness.classes
        ));
    }
    report(&venv, options, &rows);
    steps.end()
}

/// What docs/compatibility.md shows.
fn report(venv: &Venv, options: &Options, rows: &[String]) {
    println!("\n| harness | real classes | result | time |\n| --- | --- | --- | ---: |");
    for row in rows {
        println!("{row}");
    }
    let mut versions: Vec<String> = venv::NAMED
        .iter()
        .map(|p| format!("{p} {}", venv.version(p)))
        .collect();
    versions.push(venv::NAMED_ASCEND.replace("==", " "));
    println!("\nVersions: {}.", versions.join(", "));
    let package = if options.reference {
        venv::PEER.replace("==", " ")
    } else {
        format!("snowskin {}", venv.version("snowskin"))
    };
    println!(
        "Package: {package}; commit {}; {}.",
        output("git", &["rev-parse", "--short", "HEAD"]),
        output("date", &["+%F"])
    );
}

fn output(program: &str, arguments: &[&str]) -> String {
    Command::new(program)
        .args(arguments)
        .current_dir(root())
        .output()
        .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
        .unwrap_or_default()
}

/// The wheels that `cargo xtask wheel` left behind, the newest of each.
fn wheels() -> Result<Vec<PathBuf>, String> {
    let folder = root().join("target/wheels");
    let mut found = Vec::new();
    for prefix in ["snowskin-", "snowskin_mooncake-"] {
        let newest = std::fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| fits(path, prefix))
            .max_by_key(|path| path.metadata().and_then(|m| m.modified()).ok());
        found.push(newest.ok_or_else(|| {
            format!(
                "no wheel {prefix}* for Python 3.11 in {}: run `cargo xtask wheel` first",
                folder.display()
            )
        })?);
    }
    Ok(found)
}

/// Whether a file is a wheel of this package that Python 3.11 can load.
fn fits(path: &Path, prefix: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(prefix) && name.ends_with(".whl") && !name.contains("-cp310-")
}

impl Harness {
    fn folder(&self) -> PathBuf {
        match self.script {
            Script::Shared(_) => root().join("../shared/clients"),
            _ => root().join("python/clients"),
        }
    }

    /// Why it cannot be run here.
    fn missing(&self, reference: bool) -> Option<String> {
        if reference && self.device.is_some() {
            return Some("the released package reaches no device memory here".to_owned());
        }
        let Script::Shared(file) = self.script else {
            return None;
        };
        let path = self.folder().join(file);
        (!path.exists()).then(|| format!("{} is not there", path.display()))
    }

    fn run(&self, venv: &Venv, logs: &Path, reference: bool) -> Done {
        let services = Services::start(venv, logs, self.name)?;
        let bootstrap = free_port()?.to_string();
        let driver = match self.device {
            Some(_) => Some(fake_driver(logs)?),
            None => None,
        };
        let make = |arguments: &[&str]| {
            let mut command = Command::new("timeout");
            let patience = PATIENCE.as_secs().to_string();
            command.args(["--kill-after=5", &patience]);
            command.arg(venv.program("python"));
            match self.script {
                Script::Module(name) => command.args(["-m", name]),
                Script::Ours(file) | Script::Shared(file) => command.arg(self.folder().join(file)),
            };
            command.args(arguments).current_dir(logs);
            services.environment(&mut command, venv);
            command
                .env("VLLM_MOONCAKE_BOOTSTRAP_PORT", &bootstrap)
                .env("SGLANG_BOOTSTRAP_PORT", &bootstrap);
            if reference {
                command.env("SNOWSKIN_CLIENTS_REFERENCE", "1");
            }
            if let (Some(family), Some(library)) = (self.device, &driver) {
                command
                    .env("FAKE_DRIVER_FAMILY", family)
                    .env("FAKE_DRIVER", library);
            }
            command
        };
        match self.shape {
            Shape::One(arguments) => {
                let log = logs.join(format!("{}.log", self.name));
                ended(make(arguments), &log)
            }
            Shape::Two(first, second) => {
                let log = logs.join(format!("{}.1.log", self.name));
                let mut server = Server::start(make(first), &log)?;
                let done = ended(make(second), &logs.join(format!("{}.2.log", self.name)));
                let end = server.end();
                done.and(end)
            }
        }
    }
}

/// Builds the driver of devices that do not exist.
fn fake_driver(folder: &Path) -> Result<PathBuf, String> {
    let library = folder.join("libfake_driver.so");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-pthread", "-o"])
        .arg(&library)
        .arg(root().join("tests/fake-driver/fake_driver.c"))
        .status()
        .map_err(|e| format!("cc: {e}"))?;
    if status.success() {
        Ok(library)
    } else {
        Err(format!("cc ended with {status}"))
    }
}

/// Runs a command with its output in a log.
fn ended(mut command: Command, log: &Path) -> Done {
    let file = std::fs::File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
    let errors = file.try_clone().map_err(|e| e.to_string())?;
    let status = command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .status()
        .map_err(|e| format!("timeout: {e}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{status}; see {}\n{}", log.display(), tail(log)))
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(12).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// The first of two processes.
struct Server {
    child: Child,
    input: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
    log: PathBuf,
}

impl Server {
    /// Starts it and waits for its READY.
    fn start(mut command: Command, log: &Path) -> Result<Server, String> {
        let file = std::fs::File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
        let mut copy = file.try_clone().map_err(|e| e.to_string())?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .map_err(|e| format!("timeout: {e}"))?;
        let input = child.stdin.take();
        let (sender, receiver) = mpsc::sync_channel(1);
        let lines = child.stdout.take();
        // Ends with the process's output, which `timeout` bounds.
        let reader = std::thread::spawn(move || {
            let lines = lines.map(|o| BufReader::new(o).lines());
            for line in lines.into_iter().flatten().map_while(Result::ok) {
                if writeln!(copy, "{line}").is_err() {
                    return;
                }
                // A second READY, or one that nobody waits for any more, is of no use.
                if line.contains("READY") && sender.try_send(()).is_err() {
                    continue;
                }
            }
        });
        let mut server = Server {
            child,
            input,
            reader: Some(reader),
            log: log.to_path_buf(),
        };
        if receiver.recv_timeout(PATIENCE).is_ok() {
            return Ok(server);
        }
        let end = server.end();
        Err(format!(
            "the first process was never ready ({})\n{}",
            end.err().unwrap_or_default(),
            tail(log)
        ))
    }

    /// Tells it to end, and waits.
    fn end(&mut self) -> Done {
        drop(self.input.take());
        let end = self.child.wait();
        if let Some(reader) = self.reader.take()
            && reader.join().is_err()
        {
            return Err("the reader of the first process's output broke down".to_owned());
        }
        match end {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!(
                "the first process ended with {status}; see {}\n{}",
                self.log.display(),
                tail(&self.log)
            )),
            Err(error) => Err(error.to_string()),
        }
    }
}
