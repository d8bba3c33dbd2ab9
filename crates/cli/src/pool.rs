//! A master and nodes as child processes of this one: what `up` and `demo` start.

use crate::exit::Ending;
use crate::options::is_unused;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time a process may take to become ready.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Longest time a process may take to end when told to.
const END_LIMIT: Duration = Duration::from_secs(5);

/// What to start.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// Number of nodes.
    pub nodes: u16,
    /// Segment size of each, in bytes.
    pub segment_size: u64,
    /// Options of the master beyond addresses.
    pub master_options: Vec<String>,
    /// Options of each node.
    pub node_options: Vec<String>,
    /// Port of the master; 0 = any.
    pub rpc_port: u16,
    /// Folder of the master's state; `None` = one that ends with the pool.
    pub state_dir: Option<PathBuf>,
}

struct Member {
    name: String,
    child: Child,
    ready: Value,
    reader: Option<JoinHandle<()>>,
}

/// A running pool. Its processes end with it, also when this process is killed: they watch their
/// standard input.
pub struct Pool {
    members: Vec<Member>,
    _state: Option<tempfile::TempDir>,
}

impl Pool {
    /// Starts the processes and waits until each is ready.
    pub fn start(config: &PoolConfig) -> Result<Pool, Ending> {
        let scratch = match config.state_dir {
            Some(_) => None,
            None => Some(tempfile::tempdir()?),
        };
        let state = match (&config.state_dir, &scratch) {
            (Some(path), _) => path.clone(),
            (None, Some(scratch)) => scratch.path().to_path_buf(),
            (None, None) => PathBuf::new(),
        };
        let mut pool = Pool {
            members: Vec::new(),
            _state: scratch,
        };
        let mut arguments = vec![
            "master".to_owned(),
            "--rpc-address=127.0.0.1".to_owned(),
            format!("--rpc-port={}", config.rpc_port),
            "--metrics-host=127.0.0.1".to_owned(),
            "--metrics-port=0".to_owned(),
            format!("--state-dir={}", state.display()),
        ];
        arguments.extend(config.master_options.iter().cloned());
        pool.add("master", &arguments)?;
        let master = pool.master()?;
        for index in 0..config.nodes {
            let mut arguments = vec![
                "node".to_owned(),
                format!("--master={master}"),
                format!("--segment-size={}", config.segment_size),
                "--data-address=127.0.0.1:0".to_owned(),
            ];
            arguments.extend(config.node_options.iter().cloned());
            pool.add(&format!("node {index}"), &arguments)?;
        }
        Ok(pool)
    }

    fn add(&mut self, name: &str, arguments: &[String]) -> Result<(), Ending> {
        let mut command = Command::new(std::env::current_exe()?);
        // This process has said that they mean nothing; once is enough.
        for (variable, _) in std::env::vars_os() {
            if variable.to_str().is_some_and(is_unused) {
                command.env_remove(variable);
            }
        }
        let mut child = command
            .args(arguments)
            .arg("--exit-with-stdin")
            .envs(quiet())
            // It names options of this command, which the other one may not have.
            .env_remove("SNOWSKIN_CONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| {
                Ending::Runtime(format!("the {name} process could not be started: {e}"))
            })?;
        let (sender, lines) = sync_channel(1);
        let reader = child.stdout.take().map(|out| {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(out).lines().map_while(Result::ok);
                if let Some(first) = lines.next() {
                    // The receiver may have given up.
                    sender.send(first).ok();
                }
                // Whatever follows is read, so that the process never blocks on its output.
                lines.for_each(drop);
            })
        });
        let mut member = Member {
            name: name.to_owned(),
            child,
            ready: Value::Null,
            reader,
        };
        let ready = member.wait_ready(&lines);
        self.members.push(member);
        let ready = ready?;
        if let Some(last) = self.members.last_mut() {
            last.ready = ready;
        }
        Ok(())
    }

    /// The master's address.
    pub fn master(&self) -> Result<String, Ending> {
        let ready = self.members.first().map(|m| &m.ready);
        ready
            .and_then(|r| r["rpc"].as_str())
            .map(str::to_owned)
            .ok_or_else(|| Ending::Runtime("the master's ready line has no rpc address".into()))
    }

    /// The ready line of the whole pool.
    pub fn ready_line(&self) -> Value {
        let mut members = self.members.iter().map(|m| m.ready.clone());
        let master = members.next().unwrap_or_default();
        let nodes: Vec<Value> = members.collect();
        json!({
            "event": "ready",
            "role": "up",
            "pid": std::process::id(),
            "rpc": master["rpc"],
            "http": master["http"],
            "term": master["term"],
            "master": master,
            "nodes": nodes,
        })
    }

    /// The first member that has ended, and how.
    pub fn ended(&mut self) -> Option<String> {
        self.members
            .iter_mut()
            .find_map(|m| match m.child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some(format!("the {} process ended with {status}", m.name)),
                Err(e) => Some(format!("the {} process cannot be watched: {e}", m.name)),
            })
    }
}

/// Members tell only what goes wrong, unless the user asks for more.
fn quiet() -> Option<(&'static str, &'static str)> {
    let given = std::env::var_os("SNOWSKIN_LOG").is_some_and(|v| !v.is_empty());
    (!given).then_some(("SNOWSKIN_LOG", "warn"))
}

impl Member {
    fn wait_ready(&mut self, lines: &Receiver<String>) -> Result<Value, Ending> {
        let name = &self.name;
        let line = match lines.recv_timeout(READY_LIMIT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                return Err(Ending::Runtime(format!(
                    "the {name} process was not ready within {READY_LIMIT:?}"
                )));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                let text = format!("the {name} process ended with {status} before it was ready");
                return Err(match status.code() {
                    Some(2) => Ending::Usage(text),
                    _ => Ending::Runtime(text),
                });
            }
        };
        serde_json::from_str(&line).map_err(|e| {
            Ending::Runtime(format!(
                "the ready line of the {name} process is not JSON: {e}"
            ))
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The nodes first: none of them shall miss its master.
        let end = Instant::now() + END_LIMIT;
        for member in self.members.iter_mut().skip(1) {
            drop(member.child.stdin.take());
        }
        for member in self.members.iter_mut().rev() {
            drop(member.child.stdin.take());
            while let Ok(None) = member.child.try_wait() {
                if Instant::now() >= end {
                    // It may end in this very moment; then there is nothing to kill.
                    member.child.kill().ok();
                    member.child.wait().ok();
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(5));
            }
            if let Some(reader) = member.reader.take() {
                reader.join().ok();
            }
        }
    }
}
