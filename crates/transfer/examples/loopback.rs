//! Reads and writes over loopback beside a raw socket: `cargo run --release -p snowskin-transfer
//! --example loopback`. Prints GB/s of the transport, of a bare socket, and their ratio.

#![allow(
    clippy::unwrap_used,
    reason = "a measurement that cannot be set up has failed"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;
use support::*;

const MIB: usize = 1 << 20;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A peer that answers each 8-byte request with so many bytes.
fn raw_peer() -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the measuring process.
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let source = pattern(64 * MIB, 1);
        let mut request = [0; 8];
        while stream.read_exact(&mut request).is_ok() {
            let len = u64::from_le_bytes(request) as usize;
            if stream.write_all(&source[..len]).is_err() {
                return;
            }
        }
    });
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn main() {
    let rounds: usize = std::env::args()
        .nth(1)
        .map_or(5, |text| text.parse().unwrap());
    let node = Node::new(Memory::new(3 << 30, 4 << 20));
    node.memory().populate();
    let (place, transport) = (node.place(), transport());
    let mut raw = raw_peer();
    let mut memory = vec![1u8; 64 * MIB];
    let mut run_id = 0;
    let only: Option<usize> = std::env::args().nth(2).map(|text| text.parse().unwrap());
    for (size, count) in [
        (64 << 10, 64),
        (MIB, 1),
        (MIB, 16),
        (16 * MIB, 1),
        (64 * MIB, 1),
    ] {
        if only.is_some_and(|only| only != size) {
            continue;
        }
        let total = size * count;
        let repeat = (128 * MIB / total).clamp(1, 64);
        let bytes = pattern(size, 7);
        let keys: Vec<String> = (0..count).map(|i| format!("{size}-{count}-{i}")).collect();
        for key in &keys {
            put(&transport, &place, key, &bytes);
        }
        let (mut ours, mut theirs, mut puts) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let start = Instant::now();
            for _ in 0..repeat {
                for part in memory[..total].chunks_mut(size) {
                    raw.write_all(&(size as u64).to_le_bytes()).unwrap();
                    raw.read_exact(part).unwrap();
                }
            }
            theirs.push((total * repeat) as f64 / start.elapsed().as_secs_f64() / 1e9);
            let start = Instant::now();
            for _ in 0..repeat {
                let parts = memory[..total].chunks_mut(size);
                let reads = keys.iter().zip(parts);
                let reads = reads.map(|(key, part)| read(&place, key, (0, size as u64), part));
                for completion in run(&transport, reads) {
                    completion.result.unwrap();
                }
            }
            ours.push((total * repeat) as f64 / start.elapsed().as_secs_f64() / 1e9);
            run_id += 1;
            if puts.len() < 5 {
                let fresh: Vec<String> = keys.iter().map(|key| format!("{key}-{run_id}")).collect();
                let start = Instant::now();
                for completion in run(
                    &transport,
                    fresh.iter().map(|key| write(&place, key, &bytes)),
                ) {
                    completion.result.unwrap();
                }
                puts.push(total as f64 / start.elapsed().as_secs_f64() / 1e9);
            }
        }
        let (ours, theirs, puts) = (median(ours), median(theirs), median(puts));
        println!(
            "{:>8} KiB x {count:<3} read {ours:5.2} GB/s, raw {theirs:5.2}, ratio {:4.2}; write {puts:5.2}",
            size >> 10,
            ours / theirs
        );
    }
}
