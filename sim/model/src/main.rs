//! Command line of the model: `check`, `flips`, `wide`, `one`, `list`.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use snowskin_model::explore::{Bounds, Outcome, breadth_first, random_walks};
use snowskin_model::rules::{ALL_RULES, Config};
use snowskin_model::suite::{self, DROPPED, Expected, Run, STANDARD, WIDE};

const USAGE: &str = "\
usage: snowskin-model check                 the design over the standard runs; fails on a violation
       snowskin-model flips                 each rule dropped; fails if its violation stays away
       snowskin-model wide                  the design over the long runs
       snowskin-model one [name=value ...]  one run; rules are switched with rule=0
       snowskin-model list                  names of rules and options
options of one: keys replicas ssd long_grace confirm puts_replace reduce | drop dup retry node_crash master_crash session
                put remove forced locate read evict report | max=MILLIONS depth=STEPS walk=SECONDS
examples: one master_crash=1 forced=1        one lease_withheld=0 session=1 forced=1";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = args.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match (command.as_str(), rest) {
        ("check", []) => report_runs(STANDARD),
        ("wide", []) => report_runs(WIDE),
        ("flips", []) => report_flips(),
        ("one", settings) => match one(settings) {
            Ok(outcome) => {
                println!("{}", line(&settings.join(" "), &outcome));
                print_steps(&outcome);
                ExitCode::from(u8::from(!outcome.clean()))
            }
            Err(problem) => {
                eprintln!("{problem}");
                ExitCode::from(2)
            }
        },
        ("list", []) => {
            for (_, name) in ALL_RULES {
                println!("{name}");
            }
            ExitCode::SUCCESS
        }
        ("help" | "--help" | "-h", _) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("unknown command or argument: {}\n{USAGE}", args.join(" "));
            ExitCode::from(2)
        }
    }
}

fn one(settings: &[String]) -> Result<Outcome, String> {
    let mut config = Config::quiet();
    let mut bounds = Bounds {
        states: 20_000_000,
        depth: None,
    };
    let mut walk = None;
    for setting in settings {
        let Some((name, value)) = setting.split_once('=') else {
            return Err(format!("{setting}: a setting is name=value"));
        };
        let number = || {
            value
                .parse::<usize>()
                .map_err(|_| format!("{setting}: the value must be a whole number"))
        };
        match name {
            "max" => bounds.states = number()?.saturating_mul(1_000_000),
            "depth" => bounds.depth = std::num::NonZeroUsize::new(number()?),
            "walk" => {
                let seconds = u64::try_from(number()?).map_err(|e| e.to_string())?;
                walk = Some(Duration::from_secs(seconds));
            }
            _ => config.set(name, value)?,
        }
    }
    Ok(match walk {
        Some(time) => random_walks(&config, suite::WALK_SEED, time),
        None => breadth_first(&config, bounds),
    })
}

fn report_runs(runs: &[Run]) -> ExitCode {
    let mut failed = false;
    suite::in_parallel(runs, suite::run, |run, result| match result {
        Ok(outcome) => {
            println!("{}", line(run.settings, &outcome));
            print_steps(&outcome);
            failed |= !outcome.clean() || !outcome.reached;
        }
        Err(problem) => {
            println!("{}: {problem}", run.settings);
            failed = true;
        }
    });
    println!("{}", if failed { "VIOLATED" } else { "clean" });
    ExitCode::from(u8::from(failed))
}

fn report_flips() -> ExitCode {
    let mut failed = false;
    suite::in_parallel(DROPPED, suite::run_dropped, |dropped, result| {
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(problem) => {
                println!("{}: {problem}", dropped.settings);
                failed = true;
                return;
            }
        };
        let found = outcome.shortest().map_or_else(
            || {
                if outcome.exhausted {
                    "none, exhausted".into()
                } else {
                    "none, cut".into()
                }
            },
            |c| format!("{}, {} steps", c.property, c.steps.len()),
        );
        let met = match dropped.expected {
            Expected::Breaks(property) => outcome.broken.iter().any(|c| c.property == property),
            Expected::Nothing(_) => outcome.clean(),
        };
        let verdict = match (met, dropped.expected) {
            (true, Expected::Breaks(_)) => "as expected".to_owned(),
            (true, Expected::Nothing(why)) => format!("as expected: {why}"),
            (false, _) => "NOT as expected".to_owned(),
        };
        println!(
            "without {} | {} | {found} | {verdict}",
            dropped.rule_name(),
            dropped.settings
        );
        failed |= !met;
    });
    ExitCode::from(u8::from(failed))
}

fn line(settings: &str, outcome: &Outcome) -> String {
    format!(
        "{settings} | {} unique, {} generated, depth {} | {} | {:.1} s",
        outcome.unique,
        outcome.generated,
        outcome.depth,
        match (outcome.clean(), outcome.exhausted) {
            (true, true) => "clean, exhausted",
            (true, false) => "clean, cut",
            (false, _) => "VIOLATED",
        },
        outcome.elapsed.as_secs_f64()
    )
}

fn print_steps(outcome: &Outcome) {
    for found in &outcome.broken {
        println!("  {} after {} steps", found.property, found.steps.len());
        for (at, step) in found.steps.iter().enumerate() {
            println!("    {:2} {step:?}", at + 1);
        }
    }
}
