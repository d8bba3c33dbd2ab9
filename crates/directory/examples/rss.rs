//! What the directory costs: bytes of resident memory per entry, and look-ups per second.
//!
//! `cargo run --release -p snowskin-directory --example rss [KEYS [BATCH]]`

use snowskin_directory::config::Config;
use snowskin_directory::directory::Directory;
use snowskin_directory::effect::{Effect, Restored};
use snowskin_directory::event::{Event, LinkId, RequestId};
use snowskin_types::call::{Keys, Reply, Request, Reserve, Reserved};
use snowskin_types::id::{ClientId, ClusterId, Epoch, NodeId, Seq, Session, Term};
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::limits::NODE_BATCH_ITEMS_MAX;
use snowskin_types::link::{FromNode, NodeItem, Register, Stamp, ToNode};
use snowskin_types::object::{Attributes, Shape, Tier};
use snowskin_types::time::Now;
use std::error::Error;
use std::time::{Duration, Instant};

const KEY_BYTES: usize = 160;

/// Resident memory of this process.
fn rss() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1));
    Ok(kib.ok_or("no VmRSS")?.parse::<u64>()? * 1024)
}

fn key(n: u64) -> String {
    let tail = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!(
        "{:0>width$}{tail:016x}",
        "model@layer@rank@",
        width = KEY_BYTES - 16
    )
}

/// Median, 99.9th percentile and longest of the events since the last call.
fn times(spent: &mut Vec<Duration>) -> String {
    let mut spent = std::mem::take(spent);
    spent.sort_unstable();
    let at = |share: f64| spent.get((spent.len() as f64 * share) as usize);
    match (at(0.5), at(0.999), spent.last()) {
        (Some(half), Some(most), Some(last)) => {
            format!("p50 {half:.1?}, p99.9 {most:.1?}, longest {last:.1?}")
        }
        _ => "none".to_owned(),
    }
}

struct Bench {
    directory: Directory,
    link: LinkId,
    session: Session,
    seq: u64,
    requests: u64,
    out: Vec<Effect>,
    asked: Vec<Duration>,
    told: Vec<Duration>,
}

impl Bench {
    fn feed(&mut self, event: Event) {
        let is_request = matches!(event, Event::Request { .. } | Event::Tick);
        let begin = Instant::now();
        self.directory.handle(Now(1_000), event, &mut self.out);
        let spent = begin.elapsed();
        if is_request {
            self.asked.push(spent);
        } else {
            self.told.push(spent);
        }
    }

    fn ask(&mut self, request: Request) -> Option<Reply> {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.feed(Event::Request { id, request });
        loop {
            let more = self.out.contains(&Effect::Continue);
            let reply = self.out.drain(..).find_map(|e| match e {
                Effect::Reply { reply, .. } => Some(reply),
                _ => None,
            });
            if reply.is_some() || !more {
                return reply;
            }
            self.feed(Event::Tick);
        }
    }

    fn put(&mut self, from: u64, to: u64) -> Result<(), Box<dyn Error>> {
        let mut keys = Keys::new();
        for n in from..to {
            keys.push(key(n).as_bytes())?;
        }
        let item = Reserve {
            size: 1 << 20,
            replicas: 1,
            ..Reserve::default()
        };
        let request = Request::Reserve {
            client: ClientId(1),
            tenant: Tenant::default(),
            items: vec![item; keys.len()],
            keys,
        };
        let Some(Reply::Reserved { items, .. }) = self.ask(request) else {
            return Err("no reservation".into());
        };
        let mut publishes = Vec::with_capacity(items.len());
        for (n, reserved) in (from..to).zip(items) {
            let Reserved::Placed { version, .. } = reserved else {
                return Err(format!("{reserved:?}").into());
            };
            publishes.push(NodeItem::Publish {
                name: ObjectName::new(Tenant::default(), Key::new(key(n).as_bytes())?),
                version,
                shape: Shape {
                    size: 1 << 20,
                    checksum: n,
                },
                tier: Tier::Dram,
                attributes: Attributes::default(),
                acked: false,
                inventory: false,
            });
        }
        self.tell(publishes);
        Ok(())
    }

    fn tell(&mut self, items: Vec<NodeItem>) {
        self.seq += 1;
        let message = FromNode::Batch {
            session: self.session,
            seq: Seq(self.seq),
            items,
        };
        self.feed(Event::Node {
            link: self.link,
            message,
        });
        self.out.clear();
    }
}

fn begin() -> Result<Bench, Box<dyn Error>> {
    let restored = Restored {
        cluster: ClusterId(1),
        term: Term(1),
        nodes: Vec::new(),
    };
    let (directory, out) = Directory::new(Now(1_000), Config::default(), restored);
    let mut bench = Bench {
        directory,
        link: LinkId(1),
        session: Session::default(),
        seq: 0,
        requests: 0,
        out,
        asked: Vec::new(),
        told: Vec::new(),
    };
    let message = FromNode::Register(Register {
        node: NodeId(1),
        epoch: Epoch(1),
        address: "host:1".into(),
        host: "host".into(),
        capacity: 1 << 50,
        largest: 1 << 40,
        cluster: None,
        last_session: Session::default(),
        holds: 0,
        stamp: Stamp(1),
    });
    bench.feed(Event::Node {
        link: LinkId(1),
        message,
    });
    let persist = bench.out.iter().find_map(|e| match e {
        Effect::Persist { id, .. } => Some(*id),
        _ => None,
    });
    let id = persist.ok_or("no record")?;
    bench.feed(Event::Persisted { id, done: true });
    let session = bench.out.iter().find_map(|e| match e {
        Effect::Send {
            message: ToNode::Registered { session, .. },
            ..
        } => Some(*session),
        _ => None,
    });
    bench.session = session.ok_or("no session")?;
    bench.tell(vec![NodeItem::InventoryEnd]);
    Ok(bench)
}

fn main() -> Result<(), Box<dyn Error>> {
    let wanted = std::env::args().nth(1);
    let count: u64 = wanted.map_or(Ok(1_000_000), |n| n.parse())?;
    let batch: u64 = std::env::args().nth(2).map_or(Ok(128), |n| n.parse())?;
    if count == 0 || !(1..=NODE_BATCH_ITEMS_MAX as u64).contains(&batch) {
        return Err(format!("a batch has 1 to {NODE_BATCH_ITEMS_MAX} items").into());
    }
    let mut bench = begin()?;
    let before = rss()?;
    let started = Instant::now();
    for from in (0..count).step_by(batch as usize) {
        bench.put(from, count.min(from + batch))?;
    }
    let puts = started.elapsed();
    let after = rss()?;
    let per_entry = (after - before) / count;
    println!("{count} keys of {KEY_BYTES} bytes: {per_entry} bytes of RSS per entry");
    println!(
        "puts: {:.0}/s in batches of {batch}; reserve: {}; publish: {}",
        count as f64 / puts.as_secs_f64(),
        times(&mut bench.asked),
        times(&mut bench.told)
    );
    let rounds = 800_000u64.div_ceil(batch);
    let mut batches = Vec::new();
    let mut n = 7u64;
    for _ in 0..rounds {
        let mut keys = Keys::new();
        for _ in 0..batch {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            keys.push(key((n >> 20) % count).as_bytes())?;
        }
        batches.push(Request::Exists {
            tenant: Tenant::default(),
            keys,
            lease: None,
        });
    }
    let started = Instant::now();
    for request in batches {
        bench.ask(request);
    }
    let spent = started.elapsed();
    println!(
        "exists: {:.1} million keys/s in batches of {batch}; {}",
        (rounds * batch) as f64 / spent.as_secs_f64() / 1e6,
        times(&mut bench.asked)
    );
    Ok(())
}
