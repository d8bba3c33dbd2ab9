//! Each planted fault shows: without it, the same events keep the rule.

use crate::harness::*;
use snowskin_store::bugs::Bugs;
use snowskin_store::event::Filled;
use snowskin_types::link::{ItemResult, ToNode};

fn bench(capacity: u64, bugs: Bugs) -> Bench {
    let mut b = Bench::new(capacity);
    b.unchecked = true;
    b.store.plant(bugs);
    b
}

#[test]
fn publish_before_commit_names_a_replica_that_is_not_served() {
    for planted in [false, true] {
        let bugs = Bugs {
            publish_before_commit: planted,
            ..Bugs::default()
        };
        let mut b = bench(64 * KIB, bugs);
        let write = b.start_write(write_of("a", v(1), KIB));
        assert_eq!(
            b.ack_all().iter().filter_map(published).count() > 0,
            planted
        );
        assert_eq!(b.read_code(read_of("a", v(1))), -712);
        b.end_write(write, Filled::Sound);
        b.ack_all();
        assert_eq!(b.answers[&write], Ok(()));
    }
}

#[test]
fn reclaim_before_grant_gives_bytes_away_that_are_still_served() {
    for planted in [false, true] {
        let bugs = Bugs {
            reclaim_before_grant: planted,
            ..Bugs::default()
        };
        let mut b = bench(8 * KIB, bugs);
        b.put("a", v(1), 8 * KIB);
        let write = b.start_write(write_of("b", v(2), 8 * KIB));
        b.pass(1);
        assert_eq!(b.grants.contains_key(&write), planted);
        assert_eq!(b.read_code(read_of("a", v(1))), 0);
        assert_eq!(b.store.check().is_err(), planted);
    }
}

#[test]
fn rollback_on_missing_answer_drops_what_may_be_named() {
    for planted in [false, true] {
        let bugs = Bugs {
            rollback_on_missing_answer: planted,
            ..Bugs::default()
        };
        let mut b = bench(64 * KIB, bugs);
        b.commit("a", v(1), KIB);
        b.pass(500);
        assert_eq!(b.store.serves(&name("a"), v(1)), !planted);
    }
}

#[test]
fn read_without_version_serves_another_version() {
    for planted in [false, true] {
        let bugs = Bugs {
            read_without_version: planted,
            ..Bugs::default()
        };
        let mut b = bench(64 * KIB, bugs);
        b.put("a", v(2), KIB);
        let code = b.read_code(read_of("a", v(1)));
        assert_eq!(code, if planted { 0 } else { -712 });
    }
}

#[test]
fn write_not_one_shot_takes_a_retired_version_again() {
    for planted in [false, true] {
        let bugs = Bugs {
            write_not_one_shot: planted,
            ..Bugs::default()
        };
        let mut b = bench(64 * KIB, bugs);
        let (session, items) = (b.session, vec![(name("a"), v(1))]);
        b.master(ToNode::Retire { session, items });
        b.ack_with(|_| ItemResult::Ok);
        let write = b.start_write(write_of("a", v(1), KIB));
        assert_eq!(b.grants.contains_key(&write), planted);
    }
}
