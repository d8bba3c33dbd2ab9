//! T28: many small transfers need few sockets, and leave nothing behind.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use snowskin_client::{Client, ExistsOptions, GetOptions, Locations, PutOptions, RemoveOptions};
use snowskin_tests::client::connect;
use snowskin_tests::cluster::Cluster;
use snowskin_tests::process::Process;
use snowskin_tests::values::value;
use snowskin_tests::wait;
use snowskin_types::Failure;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const THREADS: usize = 16;
const OPERATIONS: usize = 100_000;
const OBJECTS: usize = 2000;

/// Sockets to this port: those that are connected, and those in TIME_WAIT.
fn sockets(port: u16) -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let wanted = format!(":{port:04X}");
    let (mut open, mut waiting) = (0, 0);
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words[2].ends_with(&wanted) && !words[1].ends_with(&wanted) {
            continue;
        }
        match words[3] {
            // Only the caller's side counts, so that no connection counts twice.
            "01" => open += usize::from(words[2].ends_with(&wanted)),
            "06" => waiting += 1,
            _ => {}
        }
    }
    (open, waiting)
}

fn own_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn key(i: usize) -> String {
    format!("small-{}", i % OBJECTS)
}

/// Runs `count` operations on all threads and returns the failures.
fn storm(count: usize, one: impl Fn(usize) -> Result<(), Failure> + Sync) -> Vec<Failure> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let worker = || {
            let mut failures = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= count {
                    return failures;
                }
                failures.extend(one(i).err());
            }
        };
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|w| w.join().unwrap())
            .collect()
    })
}

/// Looks at the sockets all the time while `body` runs; the most it saw.
fn watched<T>(port: u16, body: impl FnOnce() -> T) -> (T, usize, usize) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut open, mut waiting) = (0, 0);
            while !stop.load(Ordering::SeqCst) {
                let now = sockets(port);
                (open, waiting) = (open.max(now.0), waiting.max(now.1));
                wait::pass(Duration::from_millis(20));
            }
            (open, waiting)
        });
        let result = body();
        stop.store(true, Ordering::SeqCst);
        let (open, waiting) = watch.join().unwrap();
        (result, open, waiting)
    })
}

fn get_one(client: &Client, i: usize) -> Result<(), Failure> {
    let mut room = vec![0; 16 << 10];
    let options = GetOptions {
        // Half of them ask the master.
        locations: if i.is_multiple_of(2) {
            Locations::Fresh
        } else {
            Locations::Remembered
        },
        ..GetOptions::default()
    };
    let got = client.get_into(key(i), &mut room, &options)?;
    assert!(got == 16 << 10 && room == value(key(i).as_bytes(), 16 << 10));
    Ok(())
}

fn put_and_remove(client: &Client, i: usize) -> Result<(), Failure> {
    let name = format!("put-{i}");
    client.put(
        &name,
        &value(name.as_bytes(), 1 << 10),
        &PutOptions::default(),
    )?;
    client.remove(&name, &RemoveOptions::default())
}

fn fill(client: &Client) {
    for i in 0..OBJECTS {
        let key = key(i);
        client
            .put(
                &key,
                &value(key.as_bytes(), 16 << 10),
                &PutOptions::default(),
            )
            .unwrap();
    }
}

struct Footprint {
    own: usize,
    files: Vec<usize>,
    threads: Vec<usize>,
}

impl Footprint {
    fn of(cluster: &Cluster) -> Self {
        let all = || {
            std::iter::once(&cluster.master.process).chain(cluster.nodes.iter().map(|n| &n.process))
        };
        Footprint {
            own: own_files(),
            files: all().map(Process::files).collect(),
            threads: all().map(Process::threads).collect(),
        }
    }

    fn is_near(&self, other: &Footprint) -> bool {
        let close =
            |a: &[usize], b: &[usize], by| a.iter().zip(b).all(|(a, b)| a.abs_diff(*b) <= by);
        self.own.abs_diff(other.own) <= 10
            && close(&self.files, &other.files, 10)
            && close(&self.threads, &other.threads, 4)
    }
}

#[test]
fn many_small_transfers_use_few_sockets_and_leave_nothing_behind() {
    let mut cluster = Cluster::start(&["--default-kv-lease-ttl=2s"], 1, "256MiB");
    let data: SocketAddr = cluster.nodes[0].data;
    let client = connect(&cluster);
    fill(&client);
    let before = Footprint::of(&cluster);

    let start = Instant::now();
    let (failures, open, waiting) =
        watched(data.port(), || storm(OPERATIONS, |i| get_one(&client, i)));
    println!(
        "gets: {:.0}/s, at most {open} sockets, {waiting} in TIME_WAIT",
        OPERATIONS as f64 / start.elapsed().as_secs_f64()
    );
    assert!(
        failures.is_empty(),
        "{} {:?}",
        failures.len(),
        failures.first()
    );
    assert!(open <= 64 && waiting < 200, "{open} {waiting}");
    let start = Instant::now();
    let (failures, open, waiting) = watched(data.port(), || {
        storm(OPERATIONS, |i| put_and_remove(&client, i))
    });
    println!(
        "puts with removes: {:.0}/s, at most {open} sockets, {waiting} in TIME_WAIT",
        OPERATIONS as f64 / start.elapsed().as_secs_f64()
    );
    assert!(
        failures.is_empty(),
        "{} {:?}",
        failures.len(),
        failures.first()
    );
    assert!(open <= 64 && waiting < 200, "{open} {waiting}");
    let (open, waiting) = sockets(cluster.master.rpc.port());
    assert!(
        open <= 64 && waiting < 200,
        "{open} {waiting} to the master"
    );
    wait::until(
        "files and threads are as before",
        Duration::from_secs(5),
        || Footprint::of(&cluster).is_near(&before),
    );
    let stat = client.stat(&Default::default()).unwrap();
    assert_eq!((stat.objects, stat.unfinished), (OBJECTS as u64, 0));

    // The peer comes back, under load, at the same place; its objects are lost.
    let stop = AtomicBool::new(false);
    let under_load = std::thread::scope(|scope| {
        let load: Vec<_> = (0..THREADS)
            .map(|t| {
                let (client, stop) = (&client, &stop);
                scope.spawn(move || {
                    let (mut i, mut failed) = (t, 0);
                    while !stop.load(Ordering::SeqCst) {
                        if let Err(failure) = get_one(client, i) {
                            // Neither lost in silence, nor wrong.
                            assert_ne!(failure.code, snowskin_types::Code::Internal, "{failure}");
                            failed += 1;
                            wait::pass(Duration::from_millis(5));
                        }
                        i += THREADS;
                    }
                    failed
                })
            })
            .collect();
        wait::pass(Duration::from_millis(200));
        cluster.nodes[0].process.kill();
        cluster.nodes[0].restart();
        stop.store(true, Ordering::SeqCst);
        load.into_iter().map(|l| l.join().unwrap()).sum::<usize>()
    });
    println!("{under_load} gets failed while the peer was away");

    // From now on at most what was in flight fails: the pooled connections lead nowhere.
    let failures = storm(1000, |i| put_and_remove(&client, i + OPERATIONS));
    println!(
        "{} of 1000 puts failed after the restart: {:?}",
        failures.len(),
        failures.first()
    );
    assert!(failures.len() <= THREADS, "{:?}", failures.first());
    assert!(
        !client.exists(key(0), &ExistsOptions::default()).unwrap(),
        "its objects are lost"
    );
    fill(&client);
    let failures = storm(1000, |i| get_one(&client, i));
    assert!(
        failures.is_empty(),
        "{} {:?}",
        failures.len(),
        failures.first()
    );
    let (open, waiting) = sockets(data.port());
    assert!(open <= 64 && waiting < 200, "{open} {waiting}");
    wait::until(
        "files and threads are as before",
        Duration::from_secs(5),
        || Footprint::of(&cluster).is_near(&before),
    );
}
