//! The design is clean in small worlds, and dropping a rule brings its violation back.

use snowskin_model::explore::{Bounds, Outcome, breadth_first};
use snowskin_model::properties::{P1, P2, P3, P4, P5, P8};
use snowskin_model::rules::{ALL_RULES, Rule, rule_named};
use snowskin_model::suite::{config_of, in_parallel};

const BOUNDS: Bounds = Bounds {
    states: 2_000_000,
    depth: None,
};

fn explore(settings: &str) -> Outcome {
    breadth_first(
        &config_of(settings).expect("the settings are known"),
        BOUNDS,
    )
}

#[test]
fn design_keeps_its_promises_in_small_worlds() {
    let worlds = [
        "evict=1 remove=1 drop=1",
        "session=1 forced=1",
        "session=1 evict=1 remove=1",
        "master_crash=1 forced=1",
        "node_crash=1 ssd=1 forced=1",
        "put=2 evict=1 drop=1",
    ];
    in_parallel(
        &worlds,
        |world| explore(world),
        |world, outcome| {
            assert!(outcome.clean(), "{world}: {:?}", outcome.shortest());
            assert!(
                outcome.exhausted && outcome.reached,
                "{world}: not explored to the end"
            );
        },
    );
}

#[test]
fn dropping_a_rule_brings_its_violation_back() {
    let dropped = [
        ("commit_first=0 session=1 forced=1", P2),
        ("retract_first=0 master_crash=1 evict=1 drop=1", P2),
        ("no_rollback=0 session=1 forced=1", P2),
        ("pins=0 node_crash=1 ssd=1 forced=1", P1),
        ("floor=0 master_crash=1 forced=1", P3),
        ("plain_remove_refused=0 evict=1 remove=1", P4),
        ("fresh_number=0 session=1 put=2", P5),
        ("serving_lease=0 session=1 forced=1", P8),
        ("wait_serving_lease=0 session=1 forced=1", P8),
        ("lease_withheld=0 session=1 forced=1", P8),
        ("remove_waits_unlisted=0 master_crash=1 forced=1", P8),
    ];
    in_parallel(
        &dropped,
        |(world, _)| explore(world),
        |(world, property), outcome| {
            let found = outcome.broken.iter().any(|c| c.property == *property);
            assert!(
                found,
                "{world}: expected {property}, got {:?}",
                outcome.shortest()
            );
        },
    );
}

#[test]
fn reduced_states_lose_no_violation() {
    let worlds = [
        "evict=1 drop=1",
        "session=1 forced=1",
        "session=1 forced=1 lease_withheld=0",
        "master_crash=1 forced=1 remove_waits_unlisted=0",
        "evict=1 drop=1 retract_first=0",
    ];
    for world in worlds {
        let plain = explore(&format!("{world} reduce=0"));
        let reduced = explore(world);
        let found = |o: &Outcome| o.shortest().map(|c| c.property);
        assert_eq!(found(&plain), found(&reduced), "{world}");
        assert!(
            reduced.unique < plain.unique,
            "{world}: nothing was reduced"
        );
    }
}

#[test]
fn every_rule_has_its_own_switch() {
    let design = config_of("").expect("no settings are fine").rules;
    for (rule, name) in ALL_RULES {
        assert_eq!(rule_named(name), Some(rule));
        assert!(design.has(rule));
        assert!(!design.without(rule).has(rule));
    }
    assert!(!design.without(Rule::Pins).has(Rule::Pins));
    assert!(design.without(Rule::Pins).has(Rule::Floor));
}

#[test]
fn unknown_settings_are_named() {
    let problem = config_of("pings=1").expect_err("there is no such setting");
    assert!(problem.contains("pings"), "{problem}");
    let problem = config_of("keys=3").expect_err("two keys at most");
    assert!(problem.contains("1 to 2"), "{problem}");
}
