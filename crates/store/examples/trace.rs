//! Hit rates of the eviction policies over a trace, without a cluster and without bytes.
//!
//! `cargo run --release -p snowskin-store --example trace -- TRACE.jsonl [BLOCKS...]`
//!
//! The trace has one JSON object a line with a list `hash_ids` of block ids. Requests run in the
//! order of the file; each looks up all its blocks, then stores the missing ones in their order.

use snowskin_store::evict::Shadow;
use snowskin_types::policy::EvictionPolicy;
use std::error::Error;
use std::io::{BufRead, BufReader};

const BLOCKS: [u64; 6] = [1_000, 5_859, 10_000, 30_000, 50_000, 97_656];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: trace TRACE.jsonl [BLOCKS...]")?;
    let mut sizes = args.map(|a| a.parse()).collect::<Result<Vec<u64>, _>>()?;
    if sizes.is_empty() {
        sizes.extend(BLOCKS);
    }
    sizes.push(u64::MAX);
    let mut requests = Vec::new();
    for (line, number) in BufReader::new(std::fs::File::open(&path)?).lines().zip(1..) {
        let ids = block_ids(&line?).ok_or(format!("{path}:{number}: no hash_ids"))?;
        requests.push(ids);
    }
    println!("{:>12} {:>8} {:>8}", "blocks", "lru", "s3fifo");
    for blocks in sizes {
        let shown = match blocks {
            u64::MAX => "unlimited".to_owned(),
            blocks => blocks.to_string(),
        };
        let lru = hit_rate(&requests, EvictionPolicy::Lru, blocks);
        let s3 = hit_rate(&requests, EvictionPolicy::S3Fifo, blocks);
        println!("{shown:>12} {lru:>8.4} {s3:>8.4}");
    }
    Ok(())
}

/// Reads the one list that matters; the file is not JSON in general, only lines of this form.
fn block_ids(line: &str) -> Option<Vec<u64>> {
    let (_, rest) = line.split_once("\"hash_ids\"")?;
    let (_, rest) = rest.split_once('[')?;
    let (list, _) = rest.split_once(']')?;
    let ids = list.split(',').map(str::trim).filter(|id| !id.is_empty());
    ids.map(|id| id.parse().ok()).collect()
}

fn hit_rate(requests: &[Vec<u64>], kind: EvictionPolicy, blocks: u64) -> f64 {
    let mut cache = Shadow::new(kind, blocks);
    let (mut hits, mut refs) = (0u64, 0u64);
    let mut missing = Vec::new();
    for request in requests {
        missing.clear();
        missing.extend(request.iter().copied().filter(|id| !cache.lookup(*id)));
        refs += request.len() as u64;
        hits += (request.len() - missing.len()) as u64;
        for &id in &missing {
            cache.store(id, 1);
        }
    }
    hits as f64 / refs.max(1) as f64
}
