//! Eviction: how much, whom, and what a refusal means.

use crate::harness::*;
use snowskin_store::Config;
use snowskin_store::effect::Counter;
use snowskin_types::link::{ItemResult, NodeItem, ToNode};
use snowskin_types::policy::EvictionPolicy;
use snowskin_types::time::Millis;
use snowskin_types::version::Version;

/// 100 units of 4 KiB; eviction starts above 90 and ends at 80.
fn hundred() -> Config {
    Config {
        eviction_high: Some(0.9),
        eviction_ratio: Some(0.1),
        ..config(400 * KIB)
    }
}

fn fill(b: &mut Bench, units: std::ops::RangeInclusive<u64>) {
    for n in units {
        b.put(&n.to_string(), v(n), 4 * KIB);
    }
}

fn victims(items: &[NodeItem]) -> Vec<Version> {
    items.iter().filter_map(retracted).collect()
}

#[test]
fn eviction_runs_in_bytes_from_the_high_to_the_low_watermark() {
    let mut b = Bench::with(hundred());
    fill(&mut b, 1..=90);
    assert_eq!(b.count(Counter::Evicted), 0);
    let write = b.commit("big", v(91), 20 * KIB);
    let items = b.ack_all();
    assert_eq!(b.answers[&write], Ok(()));
    assert_eq!(
        victims(&items),
        (1..=15).map(v).collect::<Vec<_>>(),
        "oldest first"
    );
    assert_eq!(items.iter().filter_map(absent).count(), 15);
    assert_eq!(b.used(), 320 * KIB);
    assert_eq!(
        (b.count(Counter::Evicted), b.count(Counter::EvictedBytes)),
        (15, 60 * KIB)
    );
}

#[test]
fn bytes_are_given_back_only_when_the_retract_is_granted() {
    let mut b = Bench::with(hundred());
    fill(&mut b, 1..=90);
    b.start_write(write_of("more", v(91), 4 * KIB));
    let sent = b.take().remove(0);
    assert_eq!(victims(&sent.items).len(), 11);
    assert_eq!(b.used(), 364 * KIB);
    assert_eq!(
        b.read_code(read_of("1", v(1))),
        0,
        "served until it is granted"
    );
    b.ack(&sent, &[ItemResult::Ok; 11]);
    assert_eq!(b.used(), 320 * KIB);
    assert_eq!(b.read_code(read_of("1", v(1))), -712);
    let write = b.start_write(write_of("1", v(1), 4 * KIB));
    assert_eq!(b.code(write), -700);
}

#[test]
fn a_read_replica_outlives_older_unread_ones() {
    let mut b = Bench::with(hundred());
    fill(&mut b, 1..=90);
    assert_eq!(b.read_code(read_of("1", v(1))), 0);
    let items = {
        b.commit("more", v(91), 4 * KIB);
        b.ack_all()
    };
    assert_eq!(victims(&items), (2..=12).map(v).collect::<Vec<_>>());
}

#[test]
fn a_waiting_write_evicts_for_itself_and_no_more() {
    let mut b = Bench::new(400 * KIB);
    fill(&mut b, 1..=100);
    let write = b.start_write(write_of("a", v(200), 12 * KIB));
    let items = b.ack_all();
    assert!(b.grants.contains_key(&write));
    assert_eq!(victims(&items), [1, 2, 3].map(v));
}

#[test]
fn a_write_that_fits_into_no_hole_evicts_until_holes_have_joined() {
    let mut b = Bench::new(400 * KIB);
    fill(&mut b, 1..=100);
    let session = b.session;
    let items = (1..=30).map(|n| (name(&(2 * n).to_string()), v(2 * n)));
    let items = items.collect();
    b.master(ToNode::Retire { session, items });
    b.ack_all();
    assert_eq!(b.used(), 280 * KIB);
    let write = b.start_write(write_of("a", v(200), 12 * KIB));
    let items = b.ack_all();
    assert!(b.grants.contains_key(&write));
    assert!(victims(&items).len() <= 3, "{items:?}");
}

#[test]
fn a_leased_replica_is_not_reclaimed_nor_offered_again_before_its_lease_ends() {
    let mut b = Bench::new(40 * KIB);
    fill(&mut b, 1..=10);
    let write = b.start_write(write_of("a", v(20), 4 * KIB));
    let items = b.ack_with(|item| match retracted(item) {
        Some(version) if version == v(1) => ItemResult::Leased(Millis(300)),
        _ => ItemResult::Ok,
    });
    assert_eq!(
        victims(&items),
        [v(1), v(2)],
        "the next one takes its place"
    );
    assert!(b.grants.contains_key(&write));
    assert!(b.store.serves(&name("1"), v(1)));
    assert_eq!(
        (b.count(Counter::RetractRefused), b.store.usage().leased),
        (1, 4 * KIB)
    );
    b.start_write(write_of("b", v(21), 4 * KIB));
    assert_eq!(victims(&b.ack_all()), [v(3)]);
    b.pass(300);
    assert_eq!(b.store.usage().leased, 0);
    b.start_write(write_of("c", v(22), 4 * KIB));
    assert_eq!(victims(&b.ack_all()), [v(1)], "its turn was kept");
}

#[test]
fn a_replica_read_under_its_lease_loses_its_turn() {
    let mut b = Bench::new(40 * KIB);
    fill(&mut b, 1..=10);
    b.start_write(write_of("a", v(20), 4 * KIB));
    b.ack_with(|item| match retracted(item) {
        Some(version) if version == v(1) => ItemResult::Leased(Millis(300)),
        _ => ItemResult::Ok,
    });
    assert_eq!(b.read_code(read_of("1", v(1))), 0);
    b.pass(300);
    b.start_write(write_of("b", v(21), 4 * KIB));
    assert_eq!(victims(&b.ack_all()), [v(3)]);
}

#[test]
fn a_held_retract_is_tried_again_in_time_for_a_waiting_write() {
    let mut b = Bench::new(40 * KIB);
    fill(&mut b, 1..=10);
    let write = b.start_write(write_of("a", v(20), 40 * KIB));
    b.ack_with(|_| ItemResult::Held(Millis(100)));
    assert!(!b.grants.contains_key(&write));
    b.pass(105);
    assert_eq!(b.ack_all().iter().filter_map(retracted).count(), 10);
    assert!(b.grants.contains_key(&write));
}

#[test]
fn hard_pins_are_never_victims_and_soft_pins_the_last() {
    let mut b = Bench::new(40 * KIB);
    let pin = |n: u64, hard_pin, soft: Option<u64>| {
        let mut request = write_of(&n.to_string(), v(n), 4 * KIB);
        request.attributes.hard_pin = hard_pin;
        request.attributes.soft_pin = soft.map(Millis);
        request
    };
    b.commit_as(pin(1, true, None));
    b.commit_as(pin(2, false, Some(60_000)));
    b.commit_as(pin(3, false, Some(200)));
    b.ack_all();
    fill(&mut b, 4..=10);
    b.start_write(write_of("a", v(20), 28 * KIB));
    assert_eq!(victims(&b.ack_all()), [4, 5, 6, 7, 8, 9, 10].map(v));
    b.start_write(write_of("b", v(21), 4 * KIB));
    b.start_write(write_of("c", v(22), 4 * KIB));
    b.start_write(write_of("d", v(23), 4 * KIB));
    assert_eq!(victims(&b.ack_all()), [2, 3].map(v));
    assert!(b.store.serves(&name("1"), v(1)));
}

#[test]
fn an_ended_soft_pin_protects_no_more() {
    let mut b = Bench::new(40 * KIB);
    let mut request = write_of("s", v(100), 4 * KIB);
    request.attributes.soft_pin = Some(Millis(200));
    b.commit_as(request);
    b.ack_all();
    b.pass(200);
    fill(&mut b, 1..=9);
    b.start_write(write_of("a", v(20), 4 * KIB));
    assert_eq!(victims(&b.ack_all()), [v(100)]);
}

#[test]
fn soft_pins_do_not_yield_to_eviction_ahead_of_need_while_others_are_leased() {
    let mut b = Bench::with(hundred());
    for n in 1..=80 {
        let mut request = write_of(&n.to_string(), v(n), 4 * KIB);
        request.attributes.soft_pin = Some(Millis(60_000));
        b.commit_as(request);
    }
    b.ack_all();
    for n in 81..=91 {
        b.commit(&n.to_string(), v(n), 4 * KIB);
        b.ack_with(|item| match retracted(item) {
            Some(_) => ItemResult::Leased(Millis(5_000)),
            None => ItemResult::Ok,
        });
    }
    b.pass(100);
    assert_eq!(victims(&b.ack_all()), []);
    b.pass(5_000);
    assert_eq!(victims(&b.ack_all()), (81..=91).map(v).collect::<Vec<_>>());
}

#[test]
fn a_pinned_replica_is_passed_over() {
    let mut b = Bench::new(40 * KIB);
    fill(&mut b, 1..=10);
    // Touched by its read, so the others are made younger than it.
    let read = b.serve("1", v(1));
    for n in 2..=10 {
        assert_eq!(b.read_code(read_of(&n.to_string(), v(n))), 0);
    }
    b.start_write(write_of("a", v(20), 4 * KIB));
    assert_eq!(victims(&b.ack_all()), [v(2)]);
    b.end_read(read);
}

#[test]
fn a_member_of_a_broken_group_is_evicted_next() {
    for eviction in [EvictionPolicy::Lru, EvictionPolicy::S3Fifo] {
        let mut b = Bench::with(Config {
            eviction: Some(eviction),
            ..config(40 * KIB)
        });
        fill(&mut b, 1..=10);
        let session = b.session;
        b.master(ToNode::EvictNext {
            session,
            items: vec![(name("7"), v(7)), (name("9"), v(8)), (name("x"), v(9))],
        });
        assert!(b.items().is_empty(), "only when space is needed");
        b.start_write(write_of("a", v(20), 4 * KIB));
        assert_eq!(victims(&b.ack_all()), [v(7)]);
    }
}

#[test]
fn nothing_is_evicted_before_the_inventory_is_complete() {
    let mut b = Bench::new(40 * KIB);
    fill(&mut b, 1..=10);
    b.lose_link();
    b.register(1);
    let write = b.start_write(write_of("a", v(20), 4 * KIB));
    let inventory = b.take();
    b.pass(50);
    assert_eq!(victims(&b.items()), []);
    for sent in inventory {
        b.ack(&sent, &vec![ItemResult::Ok; sent.items.len()]);
    }
    assert_eq!(victims(&b.ack_all()), [v(1)]);
    assert!(b.grants.contains_key(&write));
}

#[test]
fn a_retract_cut_off_by_the_end_of_a_session_frees_nothing_and_is_tried_anew() {
    let mut b = Bench::new(40 * KIB);
    fill(&mut b, 1..=10);
    let write = b.start_write(write_of("a", v(20), 4 * KIB));
    assert_eq!(victims(&b.items()), [v(1)]);
    b.lose_link();
    assert_eq!(b.used(), 40 * KIB);
    assert_eq!(b.read_code(read_of("1", v(1))), 0);
    b.register(1);
    let items = b.ack_all();
    assert_eq!(
        items.iter().filter_map(published).count(),
        10,
        "back to committed"
    );
    assert_eq!(victims(&items).len(), 1);
    assert!(b.grants.contains_key(&write));
}

#[test]
fn an_unanswered_retract_is_sent_again_and_frees_nothing() {
    let mut b = Bench::with(Config {
        put_wait: Some(Millis(5_000)),
        ..config(40 * KIB)
    });
    fill(&mut b, 1..=10);
    b.start_write(write_of("a", v(20), 4 * KIB));
    let first = b.take().remove(0);
    b.pass(500);
    let second = b.take().remove(0);
    assert_eq!(
        (victims(&first.items), victims(&second.items)),
        (vec![v(1)], vec![v(1)])
    );
    assert!(second.seq > first.seq);
    b.ack(&first, &[ItemResult::Ok]);
    assert_eq!(b.used(), 40 * KIB);
    b.ack(&second, &[ItemResult::Ok]);
    assert_eq!(b.used(), 40 * KIB, "the writer has it");
    assert_eq!(b.count(Counter::Evicted), 1);
}

#[test]
fn a_write_that_cannot_fit_beside_hard_pins_evicts_nothing() {
    let mut b = Bench::new(40 * KIB);
    let mut request = write_of("pin", v(100), 20 * KIB);
    request.attributes.hard_pin = true;
    b.commit_as(request);
    b.ack_all();
    fill(&mut b, 1..=5);
    let write = b.start_write(write_of("a", v(20), 24 * KIB));
    b.pass(500);
    assert_eq!(b.code(write), -200);
    assert_eq!(b.count(Counter::Evicted), 0);
    assert_eq!(victims(&b.items()), []);
}

#[test]
fn a_refused_or_pending_replica_is_no_victim() {
    let mut b = Bench::new(8 * KIB);
    b.commit("1", v(1), 4 * KIB);
    b.ack_with(|_| ItemResult::Refused);
    b.commit("2", v(2), 4 * KIB);
    b.ack_with(|_| ItemResult::Pending);
    let write = b.start_write(write_of("a", v(3), 4 * KIB));
    b.pass(499);
    assert_eq!(victims(&b.items()), []);
    b.pass(1);
    assert_eq!(b.code(write), -200);
}

#[test]
fn s3_fifo_keeps_what_is_read_again_from_a_scan() {
    let mut b = Bench::with(Config {
        eviction: Some(EvictionPolicy::S3Fifo),
        ..hundred()
    });
    fill(&mut b, 1..=10);
    for n in 1..=10 {
        assert_eq!(b.read_code(read_of(&n.to_string(), v(n))), 0);
    }
    fill(&mut b, 11..=1_000);
    assert!((1..=10).all(|n| b.store.serves(&name(&n.to_string()), v(n))));
    assert!(b.used() <= 360 * KIB);
}

#[test]
fn what_was_just_put_is_not_evicted_ahead_of_need() {
    for policy in [EvictionPolicy::Lru, EvictionPolicy::S3Fifo] {
        let mut b = Bench::with(Config {
            eviction: Some(policy),
            ..hundred()
        });
        fill(&mut b, 1..=90);
        b.commit("new", v(91), 4 * KIB);
        // The publish is accepted; all that is older is under a lease.
        let proposed = victims(&b.ack_with(|item| match retracted(item) {
            Some(_) => ItemResult::Leased(Millis(300)),
            None => ItemResult::Ok,
        }));
        // All but as many of the newest as one run of eviction frees.
        assert_eq!(proposed, (1..=81).map(v).collect::<Vec<_>>());
        assert_eq!(b.read_code(read_of("new", v(91))), 0);
        // When a lease has ended the older go, although the new one came back before them.
        b.pass(300);
        let proposed = victims(&b.ack_all());
        assert_eq!(proposed.len(), 11, "{proposed:?}");
        assert!(!proposed.contains(&v(91)));
        assert_eq!(b.used(), 320 * KIB);
    }
}

#[test]
fn a_waiting_write_takes_even_what_was_just_put() {
    let mut b = Bench::with(hundred());
    fill(&mut b, 1..=90);
    b.commit("new", v(91), 40 * KIB);
    let leased = |item: &NodeItem| match retracted(item) {
        Some(version) if version != v(91) => ItemResult::Leased(Millis(300)),
        _ => ItemResult::Ok,
    };
    b.ack_with(leased);
    let write = b.start_write(write_of("more", v(92), 8 * KIB));
    b.ack_with(leased);
    assert!(b.grants.contains_key(&write));
    assert_eq!(b.read_code(read_of("new", v(91))), -712);
}
