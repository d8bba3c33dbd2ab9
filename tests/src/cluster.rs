//! A master and nodes as processes.

use crate::load;
use crate::process::Process;
use serde_json::Value;
use std::net::SocketAddr;

/// Short times, so that cases end soon: lease 2 s, suspect after 2 s, gone after 5 s, unfinished puts 5 s.
pub const SHORT: &[&str] = &[
    "--default-kv-lease-ttl=2s",
    "--suspect-after=2s",
    "--client-ttl=5s",
    "--put-start-discard-timeout=5s",
];

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

fn address(ready: &Value, field: &str) -> SocketAddr {
    let text = ready[field]
        .as_str()
        .unwrap_or_else(|| panic!("no {field} in {ready}"));
    text.parse().unwrap()
}

/// A master process with its state folder.
pub struct Master {
    pub process: Process,
    pub rpc: SocketAddr,
    pub http: SocketAddr,
    pub ready: Value,
    options: Vec<String>,
    state: tempfile::TempDir,
}

impl Master {
    /// Starts one on free ports.
    pub fn start(options: &[&str]) -> Self {
        let state = tempfile::tempdir().unwrap();
        let options = strings(options);
        let (process, ready) = Self::launch(&options, &state, 0, 0);
        let (rpc, http) = (address(&ready, "rpc"), address(&ready, "http"));
        Master {
            process,
            rpc,
            http,
            ready,
            options,
            state,
        }
    }

    fn launch(
        options: &[String],
        state: &tempfile::TempDir,
        rpc_port: u16,
        http_port: u16,
    ) -> (Process, Value) {
        let mut arguments = strings(&[
            "master",
            "--rpc-address=127.0.0.1",
            "--metrics-host=127.0.0.1",
        ]);
        arguments.push(format!("--rpc-port={rpc_port}"));
        arguments.push(format!("--metrics-port={http_port}"));
        arguments.push(format!("--state-dir={}", state.path().display()));
        arguments.extend(options.iter().cloned());
        let mut process = Process::start(&arguments);
        let ready = process.ready();
        (process, ready)
    }

    /// Starts it again on its old ports with its old state; it must have ended.
    pub fn restart(&mut self) {
        assert!(!self.process.running());
        let (process, ready) = Self::launch(
            &self.options,
            &self.state,
            self.rpc.port(),
            self.http.port(),
        );
        self.process = process;
        self.ready = ready;
    }

    /// Its address as an option value.
    pub fn address(&self) -> String {
        self.rpc.to_string()
    }
}

/// A node process.
pub struct Node {
    pub process: Process,
    pub data: SocketAddr,
    pub ready: Value,
    arguments: Vec<String>,
}

impl Node {
    /// Starts one that registers at `master`.
    pub fn start(master: &str, segment: &str, options: &[&str]) -> Self {
        Self::start_at(master, segment, 0, options)
    }

    /// Starts one with a given data port.
    pub fn start_at(master: &str, segment: &str, port: u16, options: &[&str]) -> Self {
        let mut arguments = strings(&["node"]);
        arguments.push(format!("--master={master}"));
        arguments.push(format!("--segment-size={segment}"));
        arguments.push(format!("--data-address=127.0.0.1:{port}"));
        arguments.extend(strings(options));
        let mut process = Process::start(&arguments);
        let ready = process.ready();
        let data = address(&ready, "data");
        Node {
            process,
            data,
            ready,
            arguments,
        }
    }

    /// Starts it again on its old data port; it must have ended.
    pub fn restart(&mut self) {
        assert!(!self.process.running());
        let port = format!("--data-address=127.0.0.1:{}", self.data.port());
        for argument in &mut self.arguments {
            if argument.starts_with("--data-address=") {
                argument.clone_from(&port);
            }
        }
        self.process = Process::start(&self.arguments);
        self.ready = self.process.ready();
    }
}

/// A master and some nodes.
pub struct Cluster {
    pub master: Master,
    pub nodes: Vec<Node>,
}

impl Cluster {
    /// Starts `count` nodes of `segment` bytes each.
    pub fn start(master_options: &[&str], count: usize, segment: &str) -> Self {
        let master = Master::start(master_options);
        let nodes = (0..count)
            .map(|_| Node::start(&master.address(), segment, &[]))
            .collect();
        Cluster { master, nodes }
    }

    /// The master's address.
    pub fn address(&self) -> String {
        self.master.address()
    }

    /// Fails when a thread goes on working although nobody uses the pool.
    #[track_caller]
    pub fn assert_rests(&self) {
        let nodes = self.nodes.iter().map(|node| &node.process);
        load::assert_rests(std::iter::once(&self.master.process).chain(nodes));
    }
}
