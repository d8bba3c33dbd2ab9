//! Numbered batches and their answers.

use crate::harness::*;
use snowskin_store::effect::Counter;
use snowskin_types::id::{Seq, Session, Term};
use snowskin_types::limits::{NODE_BATCH_ITEMS_MAX, NODE_BATCHES_IN_FLIGHT_MAX};
use snowskin_types::link::{ItemResult, NodeItem, ToNode};

#[test]
fn the_first_publish_leaves_at_once_and_the_next_ones_share_a_batch() {
    let mut b = Bench::new(1024 * KIB);
    b.commit("a", v(1), KIB);
    let first = b.take();
    assert_eq!(first.len(), 1);
    for n in 2..=10 {
        b.commit(&n.to_string(), v(n), KIB);
    }
    assert!(b.take().is_empty(), "they gather while one is under way");
    b.ack(&first[0], &[ItemResult::Ok]);
    let second = b.take();
    assert_eq!((second.len(), second[0].items.len()), (1, 9));
    assert!(second[0].seq > first[0].seq);
}

#[test]
fn gathered_items_leave_after_a_moment_though_an_answer_is_missing() {
    let mut b = Bench::new(1024 * KIB);
    b.commit("a", v(1), KIB);
    b.commit("b", v(2), KIB);
    assert_eq!(b.take().len(), 1);
    b.pass(5);
    assert_eq!(b.take().len(), 1);
}

#[test]
fn batches_and_their_items_are_bounded() {
    let mut b = Bench::new(64 * 1024 * KIB);
    let many = (NODE_BATCH_ITEMS_MAX * NODE_BATCHES_IN_FLIGHT_MAX + 500) as u64;
    for n in 1..=many {
        b.commit(&n.to_string(), v(n), 1);
    }
    b.pass(20);
    let batches = b.take();
    assert_eq!(batches.len(), NODE_BATCHES_IN_FLIGHT_MAX);
    assert!(
        batches
            .iter()
            .all(|sent| sent.items.len() <= NODE_BATCH_ITEMS_MAX)
    );
    for sent in &batches {
        b.ack(sent, &vec![ItemResult::Ok; sent.items.len()]);
    }
    b.ack_all();
    assert_eq!(b.count(Counter::WritesAcked), many);
}

#[test]
fn pending_is_not_an_answer_for_the_writer_but_the_second_answer_is() {
    let mut b = Bench::new(64 * KIB);
    let write = b.commit("a", v(1), KIB);
    let sent = b.take().remove(0);
    b.ack(&sent, &[ItemResult::Pending]);
    assert!(b.answers.is_empty());
    b.commit("b", v(2), KIB);
    assert_eq!(b.take().len(), 1, "a pending item does not hold up others");
    b.ack(&sent, &[ItemResult::Ok]);
    assert_eq!(b.answers[&write], Ok(()));
    b.ack(&sent, &[ItemResult::Ok]);
    assert_eq!(b.count(Counter::AnswersLate), 1);
}

#[test]
fn an_unanswered_publish_is_sent_again_under_a_fresh_number_and_only_that_counts() {
    let mut b = Bench::new(64 * KIB);
    let write = b.commit("a", v(1), KIB);
    let first = b.take().remove(0);
    b.pass(499);
    assert!(b.take().is_empty());
    b.pass(1);
    let second = b.take().remove(0);
    assert!(second.seq > first.seq);
    assert_eq!(second.items, first.items);
    assert_eq!(b.count(Counter::PublishRetries), 1);
    b.ack(&first, &[ItemResult::Ok]);
    assert!(b.answers.is_empty(), "the old number no longer counts");
    assert!(b.store.serves(&name("a"), v(1)), "ambiguity is harmless");
    b.ack(&second, &[ItemResult::Ok]);
    assert_eq!(b.answers[&write], Ok(()));
}

#[test]
fn a_pending_publish_is_sent_again_too() {
    let mut b = Bench::new(64 * KIB);
    let write = b.commit("a", v(1), KIB);
    let first = b.take().remove(0);
    b.ack(&first, &[ItemResult::Pending]);
    b.pass(500);
    let second = b.take().remove(0);
    assert!(second.seq > first.seq);
    b.ack(&first, &[ItemResult::Refused]);
    assert!(b.answers.is_empty());
    b.ack(&second, &[ItemResult::Ok]);
    assert_eq!(b.answers[&write], Ok(()));
}

#[test]
fn answers_of_another_session_are_ignored_and_counted() {
    let mut b = Bench::new(64 * KIB);
    b.commit("a", v(1), KIB);
    let sent = b.take().remove(0);
    for (term, n) in [(0, 1), (1, 9), (2, 1)] {
        let mut other = sent.clone();
        other.session = Session {
            term: Term(term),
            n,
        };
        b.ack(&other, &[ItemResult::Ok]);
    }
    assert!(b.answers.is_empty());
    assert_eq!(b.count(Counter::Fenced), 3);
    let mut other = sent.clone();
    other.seq = Seq(sent.seq.0 + 1);
    b.ack(&other, &[ItemResult::Ok]);
    assert!(b.answers.is_empty());
    assert_eq!(b.count(Counter::AnswersLate), 1);
}

#[test]
fn a_refused_publish_fails_the_write_and_is_served_until_the_order_to_retire() {
    let mut b = Bench::new(64 * KIB);
    let write = b.commit("a", v(1), KIB);
    let sent = b.take().remove(0);
    b.ack(&sent, &[ItemResult::Refused]);
    assert_eq!(b.code(write), -700);
    let again = b.start_write(write_of("a", v(1), KIB));
    assert_eq!(b.code(again), -700);
    assert_eq!(b.read_code(read_of("a", v(1))), 0, "for leases of before");
    b.pass(2_000);
    assert!(b.items().is_empty(), "it is not published again");
    let session = b.session;
    b.master(ToNode::Retire {
        session,
        items: vec![(name("a"), v(1))],
    });
    assert_eq!(
        b.items().iter().filter_map(absent).collect::<Vec<_>>(),
        [v(1)]
    );
    assert_eq!(b.used(), 0);
}

#[test]
fn an_unanswered_absence_is_told_again() {
    let mut b = Bench::new(64 * KIB);
    let session = b.session;
    b.master(ToNode::Retire {
        session,
        items: vec![(name("a"), v(1))],
    });
    let first = b.take().remove(0);
    assert!(matches!(&first.items[..], [NodeItem::Absent { .. }]));
    b.pass(500);
    let second = b.take().remove(0);
    assert!(second.seq > first.seq);
    b.ack(&second, &[ItemResult::Ok]);
    b.pass(1_000);
    assert!(b.take().is_empty());
}
