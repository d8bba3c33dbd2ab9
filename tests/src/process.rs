//! One process of the built program.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// Longest time a process may take to say that it is ready.
pub const READY_LIMIT: Duration = Duration::from_secs(20);

/// The built program: `SNOWSKIN_BIN`, or the one beside this test.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("SNOWSKIN_BIN") {
        return path.into();
    }
    let here = std::env::current_exe().unwrap();
    let profile = here.parent().and_then(|deps| deps.parent()).unwrap();
    let path = profile.join("snowskin");
    assert!(
        path.exists(),
        "{} is not built; run `cargo xtask test`, or build it and set SNOWSKIN_BIN",
        path.display()
    );
    path
}

/// Runs a command to its end.
pub fn run(arguments: &[impl AsRef<OsStr>]) -> Output {
    Command::new(binary())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs a command to its end, with its results going elsewhere.
pub fn run_into(arguments: &[&str], results: impl Into<Stdio>) -> Output {
    Command::new(binary())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(results)
        .output()
        .unwrap()
}

/// Runs a command to its end under limits that `ulimit` sets, such as `-n 20`.
pub fn run_limited(limits: &str, arguments: &[&str]) -> Output {
    Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit {limits} && exec \"$0\" \"$@\""))
        .arg(binary())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs a command to its end, with variables set and bytes on its standard input.
pub fn run_with(arguments: &[&str], variables: &[(&str, &str)], input: &[u8]) -> Output {
    let mut child = Command::new(binary())
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A command that does not read its input closes it.
        scope.spawn(move || stdin.write_all(input).ok());
        child.wait_with_output().unwrap()
    })
}

/// A process that is killed when the test ends.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Process {
    /// Starts the program with these arguments.
    pub fn start(arguments: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("stderr");
        let mut child = Command::new(binary())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let (sender, lines) = sync_channel(1024);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Process {
            child,
            lines,
            log,
            _folder: folder,
        }
    }

    /// Waits for the ready line.
    pub fn ready(&mut self) -> Value {
        match self.lines.recv_timeout(READY_LIMIT) {
            Ok(line) => {
                let ready: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(ready["event"], "ready", "{line}");
                ready
            }
            Err(_) => panic!("no ready line; stderr:\n{}", self.stderr()),
        }
    }

    /// What it has said on stderr.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Freezes it.
    /// Returns once every thread has stopped: the signal itself only asks for it.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        let stopped = |task: std::fs::DirEntry| {
            // A thread that has just ended no longer runs either.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_none_or(|(_, state)| state.starts_with('T'))
        };
        crate::wait::until("all threads have stopped", Duration::from_secs(5), || {
            std::fs::read_dir(&tasks).unwrap().flatten().all(stopped)
        });
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                start.elapsed() < limit,
                "still running after {limit:?}:\n{}",
                self.stderr()
            );
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// True while it runs.
    pub fn running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Open file descriptors.
    pub fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }

    /// Threads.
    pub fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.pid()))
            .unwrap()
            .count()
    }

    /// Resident bytes.
    pub fn rss(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "---- stderr of process {} ----\n{}",
                self.pid(),
                self.stderr()
            );
        }
        // It may have ended by itself; both failures mean that nothing is left to end.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
