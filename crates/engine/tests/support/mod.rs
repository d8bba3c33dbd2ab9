//! Engines on loopback, memory by address, and engines in processes of their own.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use snowskin_device::{Registry, Run};
use snowskin_engine::{Config, Engine, EngineError, Opcode, Request};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

pub const CANARY: u8 = 0xA5;

pub fn config() -> Config {
    Config::new("127.0.0.1")
}

pub fn engine_with(config: Config) -> Engine {
    let engine = Engine::new(Registry::default());
    engine.initialize(config).unwrap();
    engine
}

pub fn engine() -> Engine {
    engine_with(config())
}

/// Bytes of which any shift or swap of a part shows.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Memory that engines know by address.
pub struct Memory(Box<[u8]>);

impl Memory {
    pub fn new(bytes: Vec<u8>) -> Self {
        Memory(bytes.into_boxed_slice())
    }

    pub fn canaries(len: usize) -> Self {
        Memory::new(vec![CANARY; len])
    }

    pub fn address(&mut self) -> usize {
        self.0.as_mut_ptr().expose_provenance()
    }

    pub fn remote(&mut self) -> u64 {
        self.address() as u64
    }

    pub fn run(&mut self) -> Run {
        Run {
            address: self.address(),
            len: self.0.len() as u64,
        }
    }

    pub fn fill(&mut self, byte: u8) {
        std::hint::black_box(&mut self.0).fill(byte);
    }

    pub fn bytes(&self) -> &[u8] {
        std::hint::black_box(&self.0)
    }
}

pub fn request(local: usize, remote: u64, len: u64) -> Request {
    Request { local, remote, len }
}

/// One request, with how long it took.
pub fn timed(
    engine: &Engine,
    peer: &str,
    opcode: Opcode,
    request: Request,
) -> (Result<(), EngineError>, Duration) {
    let start = Instant::now();
    let result = engine.transfer(peer, opcode, &[request], None);
    (result, start.elapsed())
}

/// An address at which nothing listens.
pub fn dead_peer() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// An engine in a process of its own, with one region of a pattern.
pub struct Remote {
    child: Child,
    stdin: Option<ChildStdin>,
    pub session: String,
    pub base: u64,
    pub len: u64,
}

const CHILD: &str = "SNOWSKIN_ENGINE_TEST_CHILD";

impl Remote {
    /// Starts this test program again as an engine at the port (0: any) with `len` bytes of
    /// `pattern(len, seed)`.
    pub fn start(port: u16, len: usize, seed: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "engine_in_a_process_of_its_own", "--nocapture"])
            .env(CHILD, format!("{port} {len} {seed}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = lines.find_map(|line| {
            let line = line.unwrap();
            line.split_once("engine at ")
                .map(|(_, told)| told.to_owned())
        });
        let told = told.expect("the child told where it is");
        let (session, base) = told.split_once(' ').unwrap();
        Remote {
            stdin: child.stdin.take(),
            child,
            session: session.to_owned(),
            base: base.parse().unwrap(),
            len: len as u64,
        }
    }

    pub fn port(&self) -> u16 {
        self.session.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// As `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn freeze(&self) {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::STOP).unwrap();
    }

    pub fn thaw(&self) {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::CONT).unwrap();
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Ends by itself when its input ends; the kill is for one that hangs or is frozen.
        drop(self.stdin.take());
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The body of the child's only test; returns at once in the parent.
pub fn serve_as_child() {
    let Ok(told) = std::env::var(CHILD) else {
        return;
    };
    let numbers: Vec<u64> = told.split(' ').map(|part| part.parse().unwrap()).collect();
    let (port, len, seed) = (numbers[0] as u16, numbers[1] as usize, numbers[2]);
    let mut config = config();
    config.port = (port > 0).then_some(port);
    let engine = engine_with(config);
    let mut memory = Memory::new(pattern(len, seed));
    engine.register(&[memory.run()]).unwrap();
    println!("engine at {} {}", engine.session_id(), memory.address());
    std::io::stdout().flush().unwrap();
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).unwrap();
    engine.close();
}
