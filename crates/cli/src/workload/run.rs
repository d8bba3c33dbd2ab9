//! Runs a trace through a real pool and checks every byte.

use crate::args::ReplayLease;
use crate::exit::Ending;
use crate::trace::read::TraceRequest;
use crate::workload::content::Content;
use crate::workload::tally::Tally;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use snowskin_client::{Client, GetItem, GetOptions, PutOptions, Source, Stored, Target};
use snowskin_types::Millis;
use snowskin_types::error::{Code, Failure};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Longest latency that is told apart, in microseconds.
const LATENCY_MAX_US: u64 = 120_000_000;

/// What a run measured.
#[derive(Debug)]
pub struct Outcome {
    /// Hits.
    pub tally: Tally,
    /// Bytes that were not what was stored.
    pub wrong_bytes: u64,
    /// Gets that failed other than by a miss.
    pub failed_gets: u64,
    /// Puts that failed.
    pub failed_puts: u64,
    /// Blocks stored.
    pub stored: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Time of reading one request's blocks, in microseconds.
    pub read_us: Histogram<u64>,
    /// Time of the whole run.
    pub elapsed: Duration,
    /// The first failures.
    pub failures: Vec<Failure>,
}

/// How a run asks.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Read lease.
    pub lease: ReplayLease,
    /// Draw a progress bar.
    pub progress: bool,
}

/// Name of a block in the pool.
fn key(id: u64) -> [u8; 22] {
    let mut key = *b"block/0000000000000000";
    for (at, digit) in key.iter_mut().skip(6).zip((0..16).rev()) {
        let nibble = (id >> (digit * 4) & 15) as u8;
        *at = if nibble < 10 {
            b'0' + nibble
        } else {
            b'a' + nibble - 10
        };
    }
    key
}

/// The clock of the trace against the wall clock.
struct TraceClock {
    start: Instant,
    first: u64,
}

impl TraceClock {
    /// How long a span of trace time takes at the pace of the run so far.
    fn real(&self, span: Duration, timestamp: u64) -> Millis {
        let trace_ms = timestamp.saturating_sub(self.first);
        if trace_ms == 0 {
            return Millis::from(span);
        }
        let pace = self.start.elapsed().as_secs_f64() * 1000.0 / trace_ms as f64;
        // Never longer than asked, never nothing.
        let real = span.as_secs_f64() * 1000.0 * pace;
        Millis((real.ceil() as u64).clamp(1, Millis::from(span).0.max(1)))
    }
}

struct Run<'c> {
    client: &'c Client,
    content: Content,
    buffers: Vec<Vec<u8>>,
    outcome: Outcome,
}

/// Runs the requests in order: each looks up all its blocks, and stores the missing ones after it.
pub fn run(client: &Client, trace: &[TraceRequest], plan: Plan) -> Result<Outcome, Ending> {
    let block = usize::try_from(plan.block_bytes).map_err(|_| {
        Ending::Usage("--block-bytes is larger than this machine can address".into())
    })?;
    let widest = trace
        .iter()
        .map(|r| r.hash_ids.len())
        .max()
        .unwrap_or_default();
    let read_us =
        Histogram::new_with_max(LATENCY_MAX_US, 3).map_err(|e| Ending::Runtime(e.to_string()))?;
    let mut run = Run {
        client,
        content: Content::new(block),
        buffers: vec![vec![0; block]; widest],
        outcome: Outcome {
            tally: Tally::default(),
            wrong_bytes: 0,
            failed_gets: 0,
            failed_puts: 0,
            stored: 0,
            bytes_read: 0,
            bytes_written: 0,
            read_us,
            elapsed: Duration::ZERO,
            failures: Vec::new(),
        },
    };
    let bar = progress(plan.progress, trace.len() as u64);
    let clock = TraceClock {
        start: Instant::now(),
        first: trace.first().map_or(0, |r| r.timestamp),
    };
    for request in trace {
        let lease = match plan.lease {
            ReplayLease::Real(_) => None,
            ReplayLease::Trace(span) => Some(clock.real(span, request.timestamp)),
        };
        run.one(request, lease)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    run.outcome.elapsed = clock.start.elapsed();
    Ok(run.outcome)
}

fn progress(wanted: bool, len: u64) -> ProgressBar {
    if !wanted || !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
    }
    let style =
        ProgressStyle::with_template("{bar:40} {pos}/{len} requests, {per_sec}, {eta} left");
    ProgressBar::new(len).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

impl Run<'_> {
    fn one(&mut self, request: &TraceRequest, lease: Option<Millis>) -> Result<(), Ending> {
        let keys: Vec<[u8; 22]> = request.hash_ids.iter().map(|id| key(*id)).collect();
        let options = GetOptions {
            lease,
            ..GetOptions::default()
        };
        let mut items: Vec<GetItem<'_>> = keys
            .iter()
            .zip(&mut self.buffers)
            .map(|(key, room)| GetItem::whole(key, Target::Bytes(room)))
            .collect();
        let start = Instant::now();
        let results = self.client.get_items(&mut items, &options);
        drop(items);
        let took = u64::try_from(start.elapsed().as_micros()).unwrap_or(LATENCY_MAX_US);
        self.outcome.read_us.saturating_record(took);
        let mut found = Vec::with_capacity(results.len());
        let mut failures = Vec::new();
        for ((id, result), room) in request.hash_ids.iter().zip(results).zip(&self.buffers) {
            found.push(match result {
                Ok(got) => {
                    self.outcome.bytes_read += got.len;
                    let bytes = usize::try_from(got.len)
                        .ok()
                        .and_then(|len| room.get(..len));
                    self.outcome.wrong_bytes += self.content.wrong_bytes(*id, bytes.unwrap_or(&[]));
                    true
                }
                Err(failure) if failure.code == Code::ObjectNotFound => false,
                Err(failure) => {
                    self.outcome.failed_gets += 1;
                    failures.push(failure);
                    false
                }
            });
        }
        failures.into_iter().for_each(|failure| self.note(failure));
        self.store_missing(request, &keys, &found);
        self.outcome.tally.add(request, &found);
        Ok(())
    }

    fn store_missing(&mut self, request: &TraceRequest, keys: &[[u8; 22]], found: &[bool]) {
        let missing: Vec<usize> = found
            .iter()
            .enumerate()
            .filter(|(_, hit)| !**hit)
            .map(|(i, _)| i)
            .collect();
        if missing.is_empty() {
            return;
        }
        for &index in &missing {
            let (Some(id), Some(room)) = (request.hash_ids.get(index), self.buffers.get_mut(index))
            else {
                continue;
            };
            self.content.fill(*id, room);
        }
        let items: Vec<(&[u8; 22], Source<'_>)> = missing
            .iter()
            .filter_map(|&i| Some((keys.get(i)?, Source::Bytes(self.buffers.get(i)?))))
            .collect();
        let results = self.client.put_batch(&items, &PutOptions::default());
        for result in results {
            match result {
                Ok(Stored::Written { .. }) => {
                    self.outcome.stored += 1;
                    self.outcome.bytes_written +=
                        self.buffers.first().map_or(0, |b| b.len() as u64);
                }
                // The same id twice in one request.
                Ok(Stored::Exists { .. }) => {}
                Err(failure) => {
                    self.outcome.failed_puts += 1;
                    self.note(failure);
                }
            }
        }
    }

    fn note(&mut self, failure: Failure) {
        const SHOWN_MAX: usize = 5;
        if self.outcome.failures.len() < SHOWN_MAX {
            self.outcome.failures.push(failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_blocks_are_distinct_and_readable() {
        assert_eq!(&key(0xab), b"block/00000000000000ab");
        assert_ne!(key(1), key(1 << 60));
    }

    #[test]
    fn a_trace_lease_shrinks_with_the_pace_and_never_grows() {
        let clock = TraceClock {
            start: Instant::now(),
            first: 0,
        };
        let second = Duration::from_secs(1);
        assert_eq!(clock.real(second, 0), Millis(1000));
        // An hour of trace time has passed in no time at all.
        assert_eq!(clock.real(second, 3_600_000), Millis(1));
    }
}
