//! How much of a segment the extent arena makes usable, on four mixes of object sizes.
//!
//! The arena is arithmetic, so a large one costs no memory. Per mix and seed:
//! * steady: fill, then insert while evicting random objects until the new one fits;
//! * mix change: go on with another mix, the case that ruins slabs;
//! * FIFO: insert while evicting the oldest;
//! * at 95 %: hold the payload just below 95 % and count the allocations that fail nevertheless.

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use clap::Args;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use snowskin_store::arena::{Arena, Extents};

use crate::Outcome;
use crate::report::{median, print_json, print_table};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Below this share of payload bytes the bench fails.
const USABLE_MIN: f64 = 0.95;
/// Payload share that is held in the fourth phase.
const HELD: f64 = 0.95;

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Size of the arena in GiB; it is not touched.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=8192))]
    gib: u64,
    /// Objects inserted per phase; the first half only warms up.
    #[arg(long, default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    inserts: u64,
    /// Seeds to run; the medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
}

#[derive(Clone, Copy)]
enum Mix {
    A,
    B,
    C,
    D,
}

impl Mix {
    const ALL: [Self; 4] = [Self::A, Self::B, Self::C, Self::D];

    fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::A => "70 % 2 MiB, 30 % odd 4 KiB..4 MiB",
            Self::B => "lognormal 4 KiB..64 MiB, median 512 KiB",
            Self::C => "97 % 2 MiB, 3 % small",
            Self::D => "six fixed sizes 160 KiB..5 MiB",
        }
    }

    /// The mix that follows in the second phase: the most different one.
    fn next(self) -> Self {
        match self {
            Self::B => Self::A,
            _ => Self::B,
        }
    }

    fn size(self, rng: &mut ChaCha8Rng) -> u64 {
        const FIXED: [u64; 6] = [160 * KIB, 576 * KIB, MIB, 1152 * KIB, 2 * MIB, 5 * MIB];
        match self {
            Self::A if rng.random_bool(0.7) => 2 * MIB,
            Self::A => rng.random_range(4 * KIB..=4 * MIB),
            Self::B => {
                // Box-Muller; the first factor stays finite because the range excludes zero.
                let radius = (-2.0 * rng.random_range(f64::EPSILON..1.0).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * rng.random::<f64>()).cos();
                let size = 512.0 * 1024.0 * (1.8 * normal).exp();
                size.clamp(4096.0, 64.0 * 1024.0 * 1024.0) as u64
            }
            Self::C if rng.random_bool(0.97) => 2 * MIB,
            Self::C => rng.random_range(4 * KIB..=260 * KIB),
            Self::D => FIXED[rng.random_range(0..FIXED.len())],
        }
    }
}

/// Objects in the arena, in the order of their insertion as far as nothing was evicted at random.
struct Pool {
    arena: Arena,
    live: VecDeque<Extents>,
    payload: u64,
    refused: u64,
    granted: u64,
    pieces: u64,
}

impl Pool {
    fn new(capacity: u64) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            arena: Arena::new(capacity)?,
            live: VecDeque::new(),
            payload: 0,
            refused: 0,
            granted: 0,
            pieces: 0,
        })
    }

    fn insert(&mut self, size: u64) -> bool {
        let Some(extents) = self.arena.allocate(size) else {
            self.refused += 1;
            return false;
        };
        self.payload += size;
        self.granted += 1;
        self.pieces += extents.count() as u64;
        self.live.push_back(extents);
        true
    }

    fn remove(&mut self, extents: Option<Extents>) {
        if let Some(extents) = extents {
            self.payload -= extents.len();
            self.arena.free(extents);
        }
    }

    fn evict_random(&mut self, rng: &mut ChaCha8Rng) {
        let victim = rng.random_range(0..self.live.len().max(1));
        let victim = self.live.swap_remove_back(victim);
        self.remove(victim);
    }

    fn evict_oldest(&mut self) {
        let victim = self.live.pop_front();
        self.remove(victim);
    }

    fn fill_share(&self) -> f64 {
        self.payload as f64 / self.arena.capacity() as f64
    }

    /// Pieces per object granted since the last call of [`Pool::forget`].
    fn pieces_per_object(&self) -> f64 {
        self.pieces as f64 / self.granted.max(1) as f64
    }

    /// Starts the counters anew, at the end of a warm-up.
    fn forget(&mut self) {
        (self.refused, self.granted, self.pieces) = (0, 0, 0);
    }
}

/// Results of one mix and one seed.
#[derive(Default)]
struct Sample {
    first_failure: f64,
    steady: f64,
    changed: f64,
    fifo: f64,
    failed_per_1000: f64,
    pieces_held: f64,
    pieces_fifo: f64,
    pieces_on_failure: f64,
    allocate_ns: f64,
    free_ns: f64,
}

/// Inserts with random eviction on failure; the mean fill of the second half.
fn churn(pool: &mut Pool, mix: Mix, inserts: u64, rng: &mut ChaCha8Rng) -> f64 {
    let mut sum = 0.0;
    for nth in 0..inserts {
        if nth == inserts / 2 {
            pool.forget();
        }
        let size = mix.size(rng);
        while !pool.insert(size) {
            pool.evict_random(rng);
        }
        if nth >= inserts / 2 {
            sum += pool.fill_share();
        }
    }
    sum / (inserts - inserts / 2) as f64
}

fn sample(mix: Mix, options: &Options, seed: u64) -> Result<Sample, Box<dyn Error>> {
    let capacity = options.gib * GIB;
    let inserts = options.inserts;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut result = Sample::default();

    let mut pool = Pool::new(capacity)?;
    while pool.insert(mix.size(&mut rng)) {}
    result.first_failure = pool.fill_share();
    result.steady = churn(&mut pool, mix, inserts, &mut rng);
    result.changed = churn(&mut pool, mix.next(), inserts, &mut rng);
    result.pieces_on_failure = pool.pieces_per_object();

    let mut pool = Pool::new(capacity)?;
    while pool.insert(mix.size(&mut rng)) {}
    let mut sum = 0.0;
    for nth in 0..inserts {
        if nth == inserts / 2 {
            pool.forget();
        }
        let size = mix.size(&mut rng);
        while !pool.insert(size) {
            pool.evict_oldest();
        }
        if nth >= inserts / 2 {
            sum += pool.fill_share();
        }
    }
    result.fifo = sum / (inserts - inserts / 2) as f64;
    result.pieces_fifo = pool.pieces_per_object();
    (result.allocate_ns, result.free_ns) = time_operations(&mut pool, &mut rng);

    let mut pool = Pool::new(capacity)?;
    let held = (capacity as f64 * HELD) as u64;
    while pool.fill_share() < HELD && pool.insert(mix.size(&mut rng)) {}
    for nth in 0..inserts {
        if nth == inserts / 2 {
            pool.forget();
        }
        let size = mix.size(&mut rng);
        while pool.payload + size > held {
            pool.evict_random(&mut rng);
        }
        pool.insert(size);
    }
    let counted = inserts - inserts / 2;
    result.failed_per_1000 = pool.refused as f64 * 1000.0 / counted as f64;
    result.pieces_held = pool.pieces_per_object();
    Ok(result)
}

/// Nanoseconds per allocation and per free at about 85 % fill, in runs of 64.
fn time_operations(pool: &mut Pool, rng: &mut ChaCha8Rng) -> (f64, f64) {
    const RUN: usize = 64;
    const RUNS: usize = 3000;
    while pool.fill_share() > 0.85 {
        pool.evict_random(rng);
    }
    let (mut allocating, mut freeing) = (Duration::ZERO, Duration::ZERO);
    let mut count = 0;
    for _ in 0..RUNS {
        let mut victims = Vec::with_capacity(RUN);
        let mut sizes = Vec::with_capacity(RUN);
        for _ in 0..RUN.min(pool.live.len()) {
            let victim = rng.random_range(0..pool.live.len());
            if let Some(victim) = pool.live.swap_remove_back(victim) {
                sizes.push(victim.len());
                victims.push(victim);
            }
        }
        let start = Instant::now();
        for victim in victims {
            pool.arena.free(victim);
        }
        freeing += start.elapsed();
        let mut granted = Vec::with_capacity(RUN);
        let start = Instant::now();
        for size in &sizes {
            granted.push(pool.arena.allocate(*size));
        }
        allocating += start.elapsed();
        count += sizes.len();
        pool.live.extend(granted.into_iter().flatten());
    }
    let per_operation = |time: Duration| time.as_nanos() as f64 / count.max(1) as f64;
    (per_operation(allocating), per_operation(freeing))
}

/// Medians over the seeds for one mix.
#[derive(Serialize)]
struct Row {
    mix: &'static str,
    about: &'static str,
    fill_at_first_failure: f64,
    steady: f64,
    after_mix_change: f64,
    fifo: f64,
    usable: f64,
    failed_per_1000_at_95: f64,
    pieces_at_95: f64,
    pieces_fifo: f64,
    pieces_evicting_on_failure: f64,
    allocate_ns: f64,
    free_ns: f64,
}

impl Row {
    fn of(mix: Mix, samples: &[Sample]) -> Self {
        let middle = |of: fn(&Sample) -> f64| median(samples.iter().map(of).collect());
        let (steady, after_mix_change) = (middle(|s| s.steady), middle(|s| s.changed));
        let fifo = middle(|s| s.fifo);
        Self {
            mix: mix.name(),
            about: mix.about(),
            fill_at_first_failure: middle(|s| s.first_failure),
            steady,
            after_mix_change,
            fifo,
            usable: steady.min(after_mix_change).min(fifo),
            failed_per_1000_at_95: middle(|s| s.failed_per_1000),
            pieces_at_95: middle(|s| s.pieces_held),
            pieces_fifo: middle(|s| s.pieces_fifo),
            pieces_evicting_on_failure: middle(|s| s.pieces_on_failure),
            allocate_ns: middle(|s| s.allocate_ns),
            free_ns: middle(|s| s.free_ns),
        }
    }

    fn cells(&self) -> Vec<String> {
        let percent = |share: f64| format!("{:.1}%", share * 100.0);
        vec![
            self.mix.to_owned(),
            percent(self.fill_at_first_failure),
            percent(self.steady),
            percent(self.after_mix_change),
            percent(self.fifo),
            format!("{:.1}", self.failed_per_1000_at_95),
            format!("{:.2}", self.pieces_at_95),
            format!("{:.2}", self.pieces_fifo),
            format!("{:.2}", self.pieces_evicting_on_failure),
            format!("{:.0} / {:.0}", self.allocate_ns, self.free_ns),
            self.about.to_owned(),
        ]
    }
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    arena_gib: u64,
    inserts: u64,
    seeds: u64,
    usable_min: f64,
    passed: bool,
    mixes: Vec<Row>,
}

/// Runs all mixes; missed when one of them leaves more than 5 % unusable.
pub(crate) fn run(options: &Options, json: bool) -> Result<Outcome, Box<dyn Error>> {
    let mut mixes = Vec::new();
    for mix in Mix::ALL {
        let samples = (0..options.seeds)
            .map(|seed| sample(mix, options, seed))
            .collect::<Result<Vec<_>, _>>()?;
        mixes.push(Row::of(mix, &samples));
    }
    let passed = mixes
        .iter()
        .all(|row| row.usable >= USABLE_MIN && row.failed_per_1000_at_95 == 0.0);
    let report = Report {
        schema: "snowskin.bench-arena/1",
        arena_gib: options.gib,
        inserts: options.inserts,
        seeds: options.seeds,
        usable_min: USABLE_MIN,
        passed,
        mixes,
    };
    if json {
        print_json(&report)?;
    } else {
        let head = [
            "mix",
            "first failure",
            "steady",
            "mix change",
            "fifo",
            "failed/1000 at 95%",
            "pieces at 95%",
            "pieces fifo",
            "pieces on failure",
            "alloc / free ns",
            "sizes",
        ];
        print_table(
            &head,
            &report.mixes.iter().map(Row::cells).collect::<Vec<_>>(),
        )?;
        let verdict = if passed { "met" } else { "MISSED" };
        println!(
            "usable at least {:.0} % on every mix: {verdict}",
            USABLE_MIN * 100.0
        );
    }
    Ok(if passed {
        Outcome::Met
    } else {
        Outcome::Missed
    })
}
