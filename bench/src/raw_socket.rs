//! The physical limit of the loopback: a socket probe without any protocol, in two processes.
//!
//! The server sends runs of an area larger than the caches; the client reads them straight into
//! another one. A request is 16 bytes: offset and length.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of the server's area.
pub(crate) const AREA: usize = 512 << 20;
/// The probe server ends by itself after this time.
const LIFE: Duration = Duration::from_secs(600);
const REQUEST: usize = 16;

/// The other process; it ends with this value.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts it.
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("raw-server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child
            .stdout
            .take()
            .ok_or("the probe server has no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        Ok(Server {
            child,
            address: line.trim().parse()?,
        })
    }

    /// Opens connections to it.
    pub(crate) fn connect(&self, count: usize) -> Result<Vec<TcpStream>, Box<dyn Error>> {
        (0..count)
            .map(|_| {
                let stream = TcpStream::connect(self.address)?;
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What the other process does.
pub(crate) fn serve() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let area: Vec<u8> = (0..AREA).map(|i| ((i * 31) >> 3) as u8).collect();
    let end = Instant::now() + LIFE;
    std::thread::scope(|scope| {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            if Instant::now() > end {
                break;
            }
            let area = &area;
            scope.spawn(move || {
                let mut request = [0; REQUEST];
                stream.set_nodelay(true).ok();
                while stream.read_exact(&mut request).is_ok() {
                    let word = |half: &[u8]| {
                        half.iter()
                            .rev()
                            .fold(0usize, |n, b| (n << 8) | usize::from(*b))
                    };
                    let (offset, len) = (word(&request[..8]), word(&request[8..]));
                    let run = offset.checked_add(len).and_then(|to| area.get(offset..to));
                    let Some(run) = run else { break };
                    if stream.write_all(run).is_err() {
                        break;
                    }
                }
            });
        }
    });
    Ok(())
}

/// Asks for one run.
pub(crate) fn ask(stream: &mut TcpStream, offset: usize, len: usize) -> std::io::Result<()> {
    let mut request = [0; REQUEST];
    request[..8].copy_from_slice(&(offset as u64).to_le_bytes());
    request[8..].copy_from_slice(&(len as u64).to_le_bytes());
    stream.write_all(&request)
}

/// Reads `count` runs of `len` bytes into `target`, with up to `depth` requests under way on each
/// connection; one thread a connection. Returns the time it took.
pub(crate) fn read(
    connections: &mut [TcpStream],
    len: usize,
    count: usize,
    depth: usize,
    target: &mut [u8],
) -> Result<Duration, Box<dyn Error>> {
    let share = count / connections.len().max(1);
    let room = target.len() / connections.len().max(1) / len * len;
    let start = Instant::now();
    let done: Result<Vec<()>, std::io::Error> = std::thread::scope(|scope| {
        let threads: Vec<_> = connections
            .iter_mut()
            .zip(target.chunks_mut(room))
            .enumerate()
            .map(|(index, (stream, room))| {
                scope.spawn(move || {
                    let spots = AREA / len;
                    let offset = |n: usize| (n * 7 + index * 13) % spots * len;
                    let mut asked = 0;
                    for n in 0..share {
                        while asked < share && asked < n + depth {
                            ask(stream, offset(asked), len)?;
                            asked += 1;
                        }
                        let at = n * len % room.len();
                        stream.read_exact(&mut room[at..at + len])?;
                    }
                    Ok(())
                })
            })
            .collect();
        let ended = threads.into_iter().map(|t| {
            t.join()
                .unwrap_or_else(|_| Err(std::io::Error::other("a probe thread panicked")))
        });
        ended.collect()
    });
    done?;
    Ok(start.elapsed())
}
