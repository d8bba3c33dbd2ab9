//! The servers of one harness: a master and, once asked for, a memory node, both from the package under test.

use super::venv::Venv;
use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const HOST: &str = "127.0.0.1";

/// The running servers; dropping it ends them.
pub struct Services {
    master: Running,
    client: Running,
    metrics: u16,
}

struct Running {
    child: Child,
    port: u16,
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<u16, String> {
    TcpListener::bind((HOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|e| format!("no free port: {e}"))
}

impl Services {
    /// Starts `mooncake_master` and `mooncake_client` of the environment and waits until both answer.
    pub fn start(venv: &Venv, logs: &Path, name: &str) -> Result<Services, String> {
        let (port, metrics) = (free_port()?, free_port()?);
        let master = Running::start(
            venv,
            "mooncake_master",
            &[
                format!("--rpc_port={port}"),
                format!("--rpc_address={HOST}"),
                format!("--metrics_port={metrics}"),
                format!("--metrics_host={HOST}"),
                "--default_kv_lease_ttl=500".to_owned(),
            ],
            port,
            &logs.join(format!("{name}.master.log")),
        )?;
        let port = free_port()?;
        let client = Running::start(
            venv,
            "mooncake_client",
            &[
                format!("--host={HOST}"),
                format!("--port={port}"),
                format!("--master_server_address={HOST}:{}", master.port),
                "--metadata_server=P2PHANDSHAKE".to_owned(),
                "--protocol=tcp".to_owned(),
                "--global_segment_size=256 MB".to_owned(),
            ],
            port,
            &logs.join(format!("{name}.client.log")),
        )?;
        Ok(Services {
            master,
            client,
            metrics,
        })
    }

    /// Tells a script where they are, and what the consumers read.
    pub fn environment(&self, command: &mut Command, venv: &Venv) {
        let master = format!("{HOST}:{}", self.master.port);
        command
            .env("LD_LIBRARY_PATH", venv.libraries())
            .env("VLLM_ASCEND_SRC", venv.ascend())
            .env("MASTER", &master)
            .env("META", "P2PHANDSHAKE")
            .env("METRICS", self.metrics.to_string())
            .env("CLIENT", format!("{HOST}:{}", self.client.port))
            .env("MC_TCP_BIND_ADDRESS", HOST)
            .env("MOONCAKE_MASTER", &master)
            .env("MOONCAKE_PROTOCOL", "tcp")
            .env("MOONCAKE_DEVICE", "")
            .env("MOONCAKE_LOCAL_HOSTNAME", HOST)
            .env("MOONCAKE_TE_META_DATA_SERVER", "P2PHANDSHAKE")
            .env("MOONCAKE_GLOBAL_SEGMENT_SIZE", (256 << 20).to_string())
            .env("HF_HUB_OFFLINE", "1")
            .env("PYTHONUNBUFFERED", "1")
            // Importing a consumer without its compiled modules takes half a minute of a core.
            .env_remove("PYTHONDONTWRITEBYTECODE");
    }
}

impl Running {
    fn start(
        venv: &Venv,
        program: &str,
        arguments: &[String],
        port: u16,
        log: &Path,
    ) -> Result<Running, String> {
        let file = File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
        let errors = file.try_clone().map_err(|e| e.to_string())?;
        // `timeout` passes a request to end on, makes sure of it after 3 s, and bounds a run that was forgotten.
        let child = Command::new("timeout")
            .args(["--kill-after=3", "900"])
            .arg(venv.program(program))
            .args(arguments)
            .env("LD_LIBRARY_PATH", venv.libraries())
            .env("MC_TCP_BIND_ADDRESS", HOST)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(|e| format!("timeout: {e}"))?;
        let mut running = Running { child, port };
        running
            .listen()
            .map_err(|e| format!("{program} {e}; see {}", log.display()))?;
        Ok(running)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "another program's port has no event to wait for"
    )]
    fn listen(&mut self) -> Result<(), String> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("ended with {status}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(format!(
            "does not listen on port {} after {PATIENCE:?}",
            self.port
        ))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let id = self.child.id().to_string();
        let asked = Command::new("kill").arg(&id).status();
        if let Err(error) = asked.and_then(|_| self.child.wait()) {
            eprintln!("process {id} could not be ended: {error}");
        }
    }
}
