//! A TCP proxy on one link: passes, slows, cuts or swallows.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Shared {
    target: Mutex<Option<SocketAddr>>,
    /// Bytes per second and direction; 0 = no limit.
    rate: AtomicU64,
    swallow: AtomicBool,
    stop: AtomicBool,
    cut: AtomicU64,
    passed: AtomicU64,
    changed: (Mutex<()>, Condvar),
}

/// A running proxy; ends with its owner.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    accept: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port, with the target to be set.
    pub fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let shared = Arc::new(Shared::default());
        let inner = Arc::clone(&shared);
        let accept = std::thread::spawn(move || accept(&listener, &inner));
        Proxy {
            address,
            shared,
            accept: Some(accept),
        }
    }

    /// Passes everything on to `target`.
    pub fn to(target: SocketAddr) -> Self {
        let proxy = Self::listen();
        proxy.set_target(target);
        proxy
    }

    /// Sets where new connections go.
    pub fn set_target(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap() = Some(target);
    }

    /// Limits each direction of each connection to so many bytes per second (0: no limit).
    pub fn slow(&self, bytes_per_second: u64) {
        self.shared.rate.store(bytes_per_second, Ordering::SeqCst);
    }

    /// From now on swallows all bytes without closing anything: a black hole.
    pub fn swallow(&self) {
        self.shared.swallow.store(true, Ordering::SeqCst);
    }

    /// Passes bytes again. What was swallowed is lost, so old connections are cut.
    pub fn heal(&self) {
        self.shared.swallow.store(false, Ordering::SeqCst);
        self.cut();
    }

    /// Closes all connections under way.
    pub fn cut(&self) {
        self.shared.cut.fetch_add(1, Ordering::SeqCst);
    }

    /// Bytes passed so far, both directions.
    pub fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.changed.1.notify_all();
        if let Some(accept) = self.accept.take() {
            accept.join().unwrap();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut pumps = Vec::new();
    while !shared.stop.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((near, _)) => {
                let target = *shared.target.lock().unwrap();
                let Some(far) = target.and_then(|t| TcpStream::connect(t).ok()) else {
                    continue;
                };
                let cut = shared.cut.load(Ordering::SeqCst);
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let shared = Arc::clone(shared);
                    pumps.push(std::thread::spawn(move || pump(from, to, &shared, cut)));
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                let guard = shared.changed.0.lock().unwrap();
                drop(shared.changed.1.wait_timeout(guard, STEP).unwrap());
            }
            Err(_) => break,
        }
    }
    for pump in pumps {
        pump.join().unwrap();
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, shared: &Shared, cut: u64) {
    from.set_read_timeout(Some(STEP)).unwrap();
    to.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    from.set_nodelay(true).unwrap();
    to.set_nodelay(true).unwrap();
    let mut buffer = vec![0; 64 * 1024];
    let over = || shared.stop.load(Ordering::SeqCst) || shared.cut.load(Ordering::SeqCst) != cut;
    'run: while !over() {
        let rate = shared.rate.load(Ordering::SeqCst);
        let limit = if rate == 0 {
            buffer.len()
        } else {
            (rate / 50).clamp(1, 65_536) as usize
        };
        let start = Instant::now();
        let count = match from.read(&mut buffer[..limit]) {
            Ok(0) => break,
            Ok(count) => count,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        if shared.swallow.load(Ordering::SeqCst) {
            continue;
        }
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            match to.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if over() {
                        break 'run;
                    }
                }
                Err(_) => break 'run,
            }
        }
        shared.passed.fetch_add(count as u64, Ordering::SeqCst);
        if rate > 0 {
            let due = Duration::from_secs_f64(count as f64 / rate as f64);
            while let Some(left) = due.checked_sub(start.elapsed()).filter(|l| !l.is_zero()) {
                let guard = shared.changed.0.lock().unwrap();
                drop(
                    shared
                        .changed
                        .1
                        .wait_timeout(guard, left.min(STEP))
                        .unwrap(),
                );
                if over() {
                    break 'run;
                }
            }
        }
    }
    // Either side may be closed already.
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}
