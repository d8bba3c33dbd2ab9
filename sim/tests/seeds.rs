//! A few random histories, so that a plain `cargo test` meets the faults too.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

use snowskin_sim::meta::same_twice;
use snowskin_sim::run::run_and_explain;
use snowskin_sim::setup::Setup;

#[test]
fn no_property_is_violated_in_twenty_histories() {
    for seed in 0..20 {
        let report = run_and_explain(&Setup::of_seed(seed, 20));
        if let Some(violation) = report.violation {
            panic!("seed {seed}: {violation}\n{}", report.lines.join("\n"));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_events() {
    assert!(same_twice(&Setup::of_seed(7, 10)).unwrap() > 100);
}
