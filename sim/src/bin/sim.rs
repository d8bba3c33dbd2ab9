//! The simulator's command: random runs by seed, fixed scenarios, and the checks of the checker.
#![forbid(unsafe_code)]

use snowskin_sim::run::{self, Report};
use snowskin_sim::setup::{BUGS, Setup};
use snowskin_sim::trace::Mode;
use snowskin_sim::world::Stats;
use snowskin_sim::{meta, scenarios};
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "\
snowskin-sim [--seed N | --seeds A..B | --seconds S] [--sim-seconds 60] [--jobs 2] [--bug NAME] [--trace]
snowskin-sim meta [--seed N] [--sim-seconds 60]     the same seed twice gives the same events
snowskin-sim scenario NAME|all [--trace]            fixed schedules
snowskin-sim bugs [--seeds A..B]                    every planted bug is caught (build with --cfg known_bugs)

Exit codes: 0 ok, 2 usage, 5 a property was violated or a planted bug escaped.
Examples:
  snowskin-sim --seeds 0..500
  snowskin-sim --seed 17 --trace
  snowskin-sim --seconds 600 --jobs 2
  snowskin-sim scenario remove_takes_a_version --trace";

const FAILED: u8 = 5;

struct Options {
    command: String,
    name: Option<String>,
    seeds: Range<u64>,
    one: bool,
    seconds: Option<u64>,
    sim_seconds: u64,
    jobs: usize,
    bug: Option<String>,
    trace: bool,
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut options = Options {
        command: "run".to_owned(),
        name: None,
        seeds: 0..500,
        one: false,
        seconds: None,
        sim_seconds: 60,
        jobs: 2,
        bug: None,
        trace: false,
    };
    let mut words = args.iter();
    let mut free = Vec::new();
    while let Some(word) = words.next() {
        let (name, mut given) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let mut value = || {
            let next = given.take().or_else(|| words.next().cloned());
            next.ok_or_else(|| format!("{name} needs a value"))
        };
        let number = |text: String| {
            let parsed = text.parse::<u64>();
            parsed.map_err(|_| format!("{name} {text} is not a whole number"))
        };
        match name {
            "--seed" => {
                let seed = number(value()?)?;
                options.seeds = seed..seed + 1;
                options.one = true;
            }
            "--seeds" => {
                let text = value()?;
                let range = text.split_once("..").and_then(|(a, b)| {
                    let (a, b) = (a.parse::<u64>().ok()?, b.parse::<u64>().ok()?);
                    (a < b).then_some(a..b)
                });
                options.seeds = range.ok_or_else(|| format!("--seeds {text} is not A..B"))?;
            }
            "--seconds" => options.seconds = Some(number(value()?)?),
            "--sim-seconds" => options.sim_seconds = number(value()?)?,
            "--jobs" => options.jobs = number(value()?)?.clamp(1, 64) as usize,
            "--bug" => options.bug = Some(value()?),
            "--trace" => options.trace = true,
            "--help" | "-h" | "help" => return Err(USAGE.to_owned()),
            _ if name.starts_with('-') => return Err(format!("unknown option {name}\n{USAGE}")),
            _ => free.push(word.clone()),
        }
    }
    let mut free = free.into_iter();
    if let Some(command) = free.next() {
        options.command = command;
    }
    options.name = free.next();
    if let Some(bug) = &options.bug {
        if !BUGS.contains(&bug.as_str()) {
            return Err(format!("no bug {bug}; there are {}", BUGS.join(", ")));
        }
        if !cfg!(known_bugs) {
            return Err("planted bugs need a build with RUSTFLAGS=\"--cfg known_bugs\"".to_owned());
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let options = match parse(&args) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let ok = match options.command.as_str() {
        "run" => run_seeds(&options),
        "meta" => run_meta(&options),
        "scenario" => run_scenarios(&options),
        "bugs" => run_bugs(&options),
        other => {
            eprintln!("unknown command {other}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    }
}

fn setup_of(options: &Options, seed: u64) -> Setup {
    let mut setup = Setup::of_seed(seed, options.sim_seconds);
    setup.bug.clone_from(&options.bug);
    setup
}

fn show(report: &Report) {
    for line in &report.lines {
        println!("  {line}");
    }
    if let Some(violation) = &report.violation {
        println!("seed {}: {violation}", report.seed);
    }
}

fn add(total: &mut Stats, stats: &Stats) {
    total.events += stats.events;
    total.messages += stats.messages;
    total.puts += stats.puts;
    total.puts_failed += stats.puts_failed;
    total.reads += stats.reads;
    total.misses += stats.misses;
    total.reads_failed += stats.reads_failed;
    total.removes += stats.removes;
    total.evictions += stats.evictions;
    total.node_crashes += stats.node_crashes;
    total.master_crashes += stats.master_crashes;
}

fn run_seeds(options: &Options) -> bool {
    let started = Instant::now();
    if options.one {
        let mode = if options.trace {
            Mode::Print
        } else {
            Mode::Tail(run::TAIL)
        };
        let mut report = run::run(setup_of(options, options.seeds.start), mode);
        if report.violation.is_none() {
            report.lines.clear();
        }
        show(&report);
        println!("seed {}: {:?}", report.seed, report.stats);
        return report.violation.is_none();
    }
    let seeds = match options.seconds {
        Some(_) => options.seeds.start..u64::MAX,
        None => options.seeds.clone(),
    };
    let limit = options.seconds.map(Duration::from_secs);
    let failed = std::sync::atomic::AtomicBool::new(false);
    let go_on = || {
        let in_time = limit.is_none_or(|l| started.elapsed() < l);
        in_time && !failed.load(std::sync::atomic::Ordering::Relaxed)
    };
    let mut total = Stats::default();
    let (mut runs, mut failures) = (0u64, 0u64);
    run::run_many(
        seeds,
        options.jobs,
        |seed| setup_of(options, seed),
        go_on,
        |report| {
            runs += 1;
            add(&mut total, &report.stats);
            if report.violation.is_some() {
                failed.store(true, std::sync::atomic::Ordering::Relaxed);
                failures += 1;
                show(&report);
            }
        },
    );
    let elapsed = started.elapsed().as_secs_f64();
    println!(
        "{runs} seeds of {} simulated seconds in {elapsed:.1} s ({:.1} seeds/s), {failures} failed; {total:?}",
        options.sim_seconds,
        runs as f64 / elapsed,
    );
    failures == 0
}

fn run_meta(options: &Options) -> bool {
    let seeds = if options.one {
        options.seeds.clone()
    } else {
        1..4
    };
    for seed in seeds {
        match meta::same_twice(&setup_of(options, seed)) {
            Ok(lines) => println!("seed {seed}: {lines} lines, twice the same"),
            Err(message) => {
                println!("seed {seed}: {message}");
                return false;
            }
        }
    }
    true
}

fn run_scenarios(options: &Options) -> bool {
    let wanted = options.name.as_deref().unwrap_or("all");
    let mode = if options.trace {
        Mode::Print
    } else {
        Mode::Tail(run::TAIL)
    };
    let chosen: Vec<_> = scenarios::ALL
        .iter()
        .filter(|s| wanted == "all" || s.name == wanted)
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = scenarios::ALL.iter().map(|s| s.name).collect();
        println!("no scenario {wanted}; there are {}", names.join(", "));
        return false;
    }
    let mut ok = true;
    for scenario in chosen {
        match scenarios::play(scenario, mode) {
            Ok(()) => println!("{}: ok", scenario.name),
            Err(message) => {
                println!("{message}\n{}: FAILED", scenario.name);
                ok = false;
            }
        }
    }
    ok
}

fn run_bugs(options: &Options) -> bool {
    if !cfg!(known_bugs) {
        println!("planted bugs need a build with RUSTFLAGS=\"--cfg known_bugs\"");
        return false;
    }
    let mut escaped = 0;
    println!("{:<28} {:>6}  caught by", "planted bug", "seed");
    for bug in BUGS {
        let found = std::sync::atomic::AtomicBool::new(false);
        let mut first: Option<Report> = None;
        let setup_of = |seed| Setup {
            bug: Some(bug.to_owned()),
            ..Setup::of_seed(seed, options.sim_seconds)
        };
        let go_on = || !found.load(std::sync::atomic::Ordering::Relaxed);
        run::run_many(
            options.seeds.clone(),
            options.jobs,
            setup_of,
            go_on,
            |report| {
                let earlier = first.as_ref().is_none_or(|f| report.seed < f.seed);
                if report.violation.is_some() {
                    found.store(true, std::sync::atomic::Ordering::Relaxed);
                    if earlier {
                        first = Some(report);
                    }
                }
            },
        );
        match first
            .as_ref()
            .and_then(|r| Some((r.seed, r.violation.as_ref()?)))
        {
            Some((seed, violation)) => println!("{bug:<28} {seed:>6}  {violation}"),
            None => {
                escaped += 1;
                println!("{bug:<28} {:>6}  ESCAPED {} seeds", "-", options.seeds.end);
            }
        }
    }
    escaped == 0
}
