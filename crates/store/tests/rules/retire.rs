//! Orders to retire, questions of the master, checks of stored bytes.

use crate::harness::*;
use snowskin_store::effect::{Counter, Effect};
use snowskin_store::event::{Event, ScrubId};
use snowskin_types::call::Fault;
use snowskin_types::link::{ItemResult, NodeItem, ToNode};
use snowskin_types::time::Millis;

fn retire(b: &mut Bench, key: &str, n: u64) {
    let (session, items) = (b.session, vec![(name(key), v(n))]);
    b.master(ToNode::Retire { session, items });
}

fn verify(b: &mut Bench, key: &str, n: u64, fault: Fault) {
    let (session, items) = (b.session, vec![(name(key), v(n), fault)]);
    b.master(ToNode::Verify { session, items });
}

fn scrubs(b: &Bench) -> Vec<ScrubId> {
    let scrub = |e: &Effect| match e {
        Effect::Scrub { scrub, .. } => Some(*scrub),
        _ => None,
    };
    b.others.iter().filter_map(scrub).collect()
}

#[test]
fn a_retired_version_is_not_served_and_never_written_again() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    retire(&mut b, "a", 1);
    assert_eq!(b.used(), 0);
    assert_eq!(
        b.ack_all().iter().filter_map(absent).collect::<Vec<_>>(),
        [v(1)]
    );
    assert_eq!(b.read_code(read_of("a", v(1))), -712);
    let write = b.start_write(write_of("a", v(1), KIB));
    assert_eq!(b.code(write), -700);
    assert_eq!(b.count(Counter::Retired), 1);
}

#[test]
fn a_version_retired_before_its_write_came_is_refused() {
    let mut b = Bench::new(64 * KIB);
    retire(&mut b, "a", 1);
    assert_eq!(
        b.ack_all().iter().filter_map(absent).collect::<Vec<_>>(),
        [v(1)]
    );
    let write = b.start_write(write_of("a", v(1), KIB));
    assert_eq!(b.code(write), -700);
}

#[test]
fn an_order_to_retire_overtakes_a_publish_under_way() {
    let mut b = Bench::new(64 * KIB);
    let write = b.commit("a", v(1), KIB);
    let sent = b.take().remove(0);
    retire(&mut b, "a", 1);
    assert_eq!(b.code(write), -700);
    let next = b.take();
    assert!(next.iter().all(|batch| batch.seq > sent.seq));
    b.ack(&sent, &[ItemResult::Ok]);
    b.pass(600);
    let items: Vec<_> = [next.into_iter().flat_map(|s| s.items).collect(), b.items()].concat();
    assert_eq!(
        items.iter().filter_map(published).count(),
        0,
        "not told again"
    );
    assert!(items.iter().filter_map(absent).all(|gone| gone == v(1)) && !items.is_empty());
}

#[test]
fn a_waiting_write_is_retired_without_a_grant() {
    let mut b = Bench::new(64 * KIB);
    b.start_write(write_of("big", v(1), 64 * KIB));
    let write = b.start_write(write_of("a", v(2), KIB));
    retire(&mut b, "a", 2);
    assert_eq!(b.code(write), -700);
    assert_eq!(
        b.ack_all().iter().filter_map(absent).collect::<Vec<_>>(),
        [v(2)]
    );
}

#[test]
fn a_repeated_order_to_retire_is_answered_again() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    for _ in 0..3 {
        retire(&mut b, "a", 1);
        retire(&mut b, "a", 1);
        assert_eq!(
            b.ack_all().iter().filter_map(absent).collect::<Vec<_>>(),
            [v(1)]
        );
    }
}

#[test]
fn orders_of_another_session_are_ignored() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    let old = b.session;
    b.lose_link();
    b.register(2);
    b.ack_all();
    let items = vec![(name("a"), v(1))];
    b.master(ToNode::Retire {
        session: old,
        items,
    });
    assert!(b.store.serves(&name("a"), v(1)));
    assert_eq!(b.count(Counter::Fenced), 1);
}

#[test]
fn a_replica_reported_gone_is_published_again_when_it_is_here() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    verify(&mut b, "a", 1, Fault::Gone);
    let items = b.ack_all();
    assert!(matches!(
        &items[..],
        [NodeItem::Publish {
            acked: true,
            inventory: false,
            ..
        }]
    ));
}

#[test]
fn a_replica_reported_gone_that_is_not_here_is_absent_for_ever() {
    let mut b = Bench::new(64 * KIB);
    verify(&mut b, "a", 1, Fault::Gone);
    assert_eq!(
        b.ack_all().iter().filter_map(absent).collect::<Vec<_>>(),
        [v(1)]
    );
    let write = b.start_write(write_of("a", v(1), KIB));
    assert_eq!(b.code(write), -700);
}

#[test]
fn a_question_that_crosses_a_publish_is_answered_after_it() {
    let mut b = Bench::new(64 * KIB);
    b.commit("a", v(1), KIB);
    let sent = b.take().remove(0);
    verify(&mut b, "a", 1, Fault::Gone);
    assert!(b.take().is_empty());
    b.ack(&sent, &[ItemResult::Ok]);
    let items = b.ack_all();
    assert_eq!(
        items.iter().filter_map(published).collect::<Vec<_>>(),
        [v(1)]
    );
    b.pass(1_000);
    assert!(b.items().is_empty());
}

#[test]
fn a_replica_reported_bad_is_checked_and_published_again_when_sound() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    verify(&mut b, "a", 1, Fault::Bad);
    verify(&mut b, "a", 1, Fault::Bad);
    let scrub = scrubs(&b);
    assert_eq!(scrub.len(), 1);
    assert!(b.items().is_empty());
    assert_eq!(b.read_code(read_of("a", v(1))), 0);
    b.feed(Event::Scrubbed {
        scrub: scrub[0],
        sound: true,
    });
    assert_eq!(
        b.ack_all().iter().filter_map(published).collect::<Vec<_>>(),
        [v(1)]
    );
}

#[test]
fn a_damaged_replica_is_not_served_and_retracted_whatever_the_answer() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    verify(&mut b, "a", 1, Fault::Bad);
    let scrub = scrubs(&b)[0];
    b.feed(Event::Scrubbed {
        scrub,
        sound: false,
    });
    assert_eq!(b.read_code(read_of("a", v(1))), -712);
    assert_eq!(b.count(Counter::ScrubBad), 1);
    let sent = b.take().remove(0);
    assert!(matches!(
        &sent.items[..],
        [NodeItem::Retract { bad: true, .. }]
    ));
    b.ack(&sent, &[ItemResult::Held(Millis(10))]);
    assert_eq!(b.read_code(read_of("a", v(1))), -712);
    // It outlives the session: it is no part of the inventory and is retracted again.
    b.lose_link();
    b.register(2);
    let items = b.ack_all();
    assert_eq!(items.iter().filter_map(published).count(), 0);
    assert_eq!(
        items.iter().filter_map(retracted).collect::<Vec<_>>(),
        [v(1)]
    );
    assert_eq!(items.iter().filter_map(absent).collect::<Vec<_>>(), [v(1)]);
    assert_eq!(b.used(), 0);
    assert_eq!(b.count(Counter::Evicted), 0);
}

#[test]
fn a_check_pins_its_bytes() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    verify(&mut b, "a", 1, Fault::Bad);
    let scrub = scrubs(&b)[0];
    retire(&mut b, "a", 1);
    assert_eq!(b.used(), 4 * KIB);
    b.feed(Event::Scrubbed {
        scrub,
        sound: false,
    });
    assert_eq!(b.used(), 0);
    b.ack_all();
}

#[test]
fn checks_run_a_few_at_a_time() {
    let mut b = Bench::new(1024 * KIB);
    for n in 1..=20 {
        b.put(&n.to_string(), v(n), KIB);
        verify(&mut b, &n.to_string(), n, Fault::Bad);
    }
    let mut done = 0;
    while let Some(&scrub) = scrubs(&b).get(done) {
        assert!(scrubs(&b).len() - done <= 4);
        b.feed(Event::Scrubbed { scrub, sound: true });
        done += 1;
    }
    assert_eq!(done, 20);
}
