//! Registration, inventory, the end of sessions.

use crate::harness::*;
use snowskin_store::effect::{Counter, Effect};
use snowskin_store::event::{Event, LinkId};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::id::{ClusterId, Session, Term};
use snowskin_types::limits::NODE_BATCHES_IN_FLIGHT_MAX;
use snowskin_types::link::{FromNode, ItemResult, NodeItem, Stamp, ToNode};
use snowskin_types::policy::EvictionPolicy;
use snowskin_types::time::Millis;

fn registered(b: &Bench, session: Session, cluster: ClusterId) -> ToNode {
    ToNode::Registered {
        session,
        cluster,
        stamp: Stamp(b.now.0),
        serving: Millis(5_000),
        policy: b.policy,
    }
}

#[test]
fn a_store_serves_nothing_before_it_is_registered() {
    let mut b = Bench::bare(config(64 * KIB));
    let write = b.start_write(write_of("a", v(1), KIB));
    assert_eq!(b.code(write), -1010);
    assert_eq!(b.read_code(read_of("a", v(1))), -1010);
    assert_eq!(b.store.session(), None);
    b.register(1);
    assert_eq!(b.store.session(), Some(b.session));
    assert_eq!(b.store.serving_until(), b.now + Millis(5_000));
    assert!(matches!(&b.items()[..], [NodeItem::InventoryEnd]));
}

#[test]
fn the_registration_tells_what_the_master_needs() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    b.lose_link();
    b.pass(10);
    b.register(1);
    let register = b.registers.last().unwrap().clone();
    assert_eq!((register.epoch, register.cluster), (EPOCH, Some(CLUSTER)));
    assert_eq!(
        (register.capacity, register.largest, register.holds),
        (64 * KIB, 64 * KIB, 1)
    );
    assert_eq!(
        register.last_session,
        Session {
            term: Term(1),
            n: 1
        }
    );
    assert_eq!(register.stamp, Stamp(b.now.0));
}

#[test]
fn the_inventory_tells_all_replicas_in_bounded_windows_and_then_its_end() {
    let mut b = Bench::new(64 * 1024 * KIB);
    for n in 1..=10_000 {
        b.commit(&n.to_string(), v(n), 1);
    }
    b.ack_all();
    b.lose_link();
    b.register(2);
    assert_eq!(b.registers.last().unwrap().holds, 10_000);
    let window = b.batches.len();
    assert!(window <= NODE_BATCHES_IN_FLIGHT_MAX, "{window}");
    assert!(!b.store.is_inventoried());
    // The first of them stays without an answer: the end waits for it.
    let first = b.batches.remove(0);
    let items = b.ack_all();
    assert!(!items.contains(&NodeItem::InventoryEnd));
    b.ack(&first, &vec![ItemResult::Pending; first.items.len()]);
    let mut items = [first.items, items, b.ack_all()].concat();
    assert_eq!(items.pop(), Some(NodeItem::InventoryEnd));
    assert!(b.store.is_inventoried());
    let mut told: Vec<_> = items.iter().filter_map(published).collect();
    told.sort_unstable();
    assert_eq!(told, (1..=10_000).map(v).collect::<Vec<_>>());
    let flags = |item: &NodeItem| {
        matches!(
            item,
            NodeItem::Publish {
                acked: true,
                inventory: true,
                ..
            }
        )
    };
    assert!(items.iter().all(flags));
}

#[test]
fn refused_and_pending_items_count_as_answers_of_the_inventory() {
    let mut b = Bench::new(64 * KIB);
    for n in 1..=3 {
        b.put(&n.to_string(), v(n), KIB);
    }
    b.lose_link();
    b.register(2);
    b.ack_with(|item| match published(item) {
        Some(version) if version == v(1) => ItemResult::Refused,
        Some(version) if version == v(2) => ItemResult::Pending,
        _ => ItemResult::Ok,
    });
    assert!(b.store.is_inventoried());
    assert_eq!(
        b.store.usage().replicas,
        3,
        "nothing is dropped on the spot"
    );
    b.pass(500);
    let items = b.ack_all();
    let again = |item: &NodeItem| matches!(item, NodeItem::Publish { version, inventory: true, .. } if *version == v(2));
    assert!(items.len() == 1 && items.iter().all(again), "{items:?}");
}

#[test]
fn a_put_in_flight_over_a_session_is_told_as_never_acked_and_then_answered() {
    let mut b = Bench::new(64 * KIB);
    let write = b.commit("a", v(1), KIB);
    b.take();
    b.lose_link();
    assert_eq!(b.count(Counter::PublishAmbiguous), 1);
    assert_eq!(b.count(Counter::SessionLost), 1);
    assert_eq!(b.read_code(read_of("a", v(1))), 0, "locations stay good");
    b.register(2);
    let sent = b.take().remove(0);
    let flags = |item: &NodeItem| {
        matches!(
            item,
            NodeItem::Publish {
                acked: false,
                inventory: true,
                ..
            }
        )
    };
    assert!(flags(&sent.items[0]));
    b.ack(&sent, &[ItemResult::Pending]);
    assert!(b.answers.is_empty());
    b.ack(&sent, &[ItemResult::Ok]);
    assert_eq!(b.answers[&write], Ok(()));
}

#[test]
fn what_is_committed_during_the_inventory_is_told_once() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    b.lose_link();
    b.register(1);
    let write = b.commit("b", v(2), KIB);
    b.pass(5);
    let items = b.ack_all();
    assert_eq!(
        items.iter().filter_map(published).collect::<Vec<_>>(),
        [v(1), v(2)]
    );
    assert_eq!(b.answers[&write], Ok(()));
}

#[test]
fn what_is_committed_without_a_session_waits_for_the_next_one() {
    let mut b = Bench::new(64 * KIB);
    b.lose_link();
    let write = b.commit("a", v(1), KIB);
    assert!(b.take().is_empty());
    b.register(1);
    b.ack_all();
    assert_eq!(b.answers[&write], Ok(()));
}

#[test]
fn absences_not_confirmed_are_told_in_the_next_session() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    let session = b.session;
    b.master(ToNode::Retire {
        session,
        items: vec![(name("a"), v(1))],
    });
    b.take();
    b.lose_link();
    b.register(1);
    let items = b.ack_all();
    assert_eq!(items.iter().filter_map(absent).collect::<Vec<_>>(), [v(1)]);
    assert_eq!(items.iter().filter_map(published).count(), 0);
}

#[test]
fn a_new_link_ends_the_session_of_the_old_one() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    let old = b.link;
    b.register(1);
    assert!(b.others.contains(&Effect::Close { link: old }));
    b.ack_all();
    b.feed(Event::LinkLost { link: old });
    assert!(b.store.session().is_some(), "the old link's end is no news");
    let message = ToNode::Ping {
        session: b.session,
        nonce: 1,
        confirmed: Stamp(b.now.0),
    };
    b.feed(Event::Master { link: old, message });
    assert_eq!((b.count(Counter::Fenced), b.pongs.len()), (1, 0));
}

#[test]
fn another_cluster_an_older_term_or_an_old_session_is_not_obeyed() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), KIB);
    b.lose_link();
    b.register(3);
    b.ack_all();
    let good = b.session;
    let until = b.store.serving_until();
    for (term, n, cluster) in [(4, 1, 6), (2, 9, 5), (3, 1, 5)] {
        b.pass(10);
        b.link = LinkId(b.link.0 + 1);
        b.feed(Event::LinkUp { link: b.link });
        let session = Session {
            term: Term(term),
            n,
        };
        let message = registered(&b, session, ClusterId(cluster));
        b.master(message);
        assert_eq!(b.store.session(), None);
        assert!(b.others.contains(&Effect::Close { link: b.link }));
        assert!(b.store.serving_until() <= until + Millis(100));
    }
    b.session = good;
    b.register(3);
    assert_eq!(b.store.session(), Some(b.session));
}

#[test]
fn a_refusal_closes_the_link_and_is_remembered() {
    let mut b = Bench::bare(config(64 * KIB));
    b.link = LinkId(1);
    b.feed(Event::LinkUp { link: b.link });
    let failure = Failure::new(Code::SegmentAlreadyExists, Stage::Session, "taken");
    b.master(ToNode::Refused {
        failure: failure.clone(),
        retry: true,
    });
    assert!(b.others.contains(&Effect::Close { link: b.link }));
    assert_eq!(b.store.refusal(), Some(&(failure, true)));
    b.register(1);
    assert_eq!(b.store.refusal(), None);
}

#[test]
fn a_ping_is_answered_with_the_clock_the_fill_and_the_policy() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), 8 * KIB);
    b.pass(20);
    let Some(FromNode::Pong {
        stamp,
        used,
        largest_free,
        policy,
        ..
    }) = b.pongs.last()
    else {
        panic!();
    };
    assert_eq!(*stamp, Stamp(b.now.0));
    assert_eq!((*used, *largest_free), (8 * KIB, 56 * KIB));
    assert_eq!(policy.as_deref(), Some(b.store.policy_text().as_str()));
}

#[test]
fn a_pong_tells_what_is_served_and_what_was_done() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), 5);
    b.put("b", v(2), 7 * KIB);
    let read = b.serve("b", v(2));
    b.pass(20);
    let told = b.pongs.last();
    let Some(FromNode::Pong { figures, .. }) = told else {
        panic!();
    };
    let figures = figures.unwrap();
    assert_eq!(figures, b.store.figures());
    assert_eq!((figures.held, figures.held_bytes), (2, 5 + 7 * KIB));
    assert_eq!((figures.pins, figures.reads), (1, 1));
    let session = b.store.session().unwrap();
    let items = vec![(name("b"), v(2))];
    b.master(ToNode::Retire { session, items });
    let figures = b.store.figures();
    assert_eq!(
        (figures.held, figures.held_bytes),
        (1, 5),
        "not served any more"
    );
    assert_eq!(figures.pins, 1, "the read goes on");
    b.end_read(read);
    assert_eq!(b.store.figures().pins, 0);
}

#[test]
fn writes_that_waited_for_space_are_told() {
    let mut b = Bench::new(64 * KIB);
    b.put("a", v(1), 48 * KIB);
    b.start_write(write_of("b", v(2), 60 * KIB));
    assert_eq!(b.store.figures().put_waited, 1);
    assert_eq!(b.store.figures().put_wait_failed, 0);
    b.pass(60_000);
    assert_eq!(b.store.figures().put_wait_failed, 1);
}

#[test]
fn the_pushed_policy_is_in_force_unless_the_node_has_its_own() {
    let mut b = Bench::bare(config(64 * KIB));
    b.policy.eviction_policy = EvictionPolicy::S3Fifo;
    b.policy.eviction_high = 0.5;
    b.policy.put_wait = Millis(70);
    b.register(1);
    assert_eq!(
        b.store.policy_text(),
        "eviction s3fifo (master), high 1 (node), ratio 0 (node), put-wait 70ms (master)"
    );
    b.ack_all();
    b.start_write(write_of("big", v(1), 64 * KIB));
    let write = b.start_write(write_of("a", v(2), KIB));
    b.pass(70);
    assert_eq!(b.code(write), -200);
}

#[test]
fn a_policy_that_changes_takes_the_replicas_over() {
    let mut b = Bench::new(64 * KIB);
    for n in 1..=16 {
        b.put(&n.to_string(), v(n), 4 * KIB);
    }
    b.lose_link();
    b.policy.eviction_policy = EvictionPolicy::S3Fifo;
    b.register(1);
    b.ack_all();
    let write = b.start_write(write_of("a", v(20), 8 * KIB));
    b.ack_all();
    assert!(b.grants.contains_key(&write));
    assert!(!b.store.serves(&name("1"), v(1)), "the order was kept");
    assert!(b.store.serves(&name("16"), v(16)));
}
