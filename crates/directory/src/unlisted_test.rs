//! Puts and removes over a restart, while a known node has not told the new master what it holds and may serve it.

use crate::config::Config;
use crate::event::LinkId;
use crate::testkit::*;
use snowskin_types::call::*;
use snowskin_types::error::Code;
use snowskin_types::link::{ItemResult, NodeItem, Stamp, ToNode};
use snowskin_types::version::Version;

/// The serving lease that a former master may have confirmed until this one started, with its margin.
const SERVING: u64 = 5_250;

/// A master of term 3 past its grace: node 1 has nothing, node 2 is away and has told nothing.
fn restarted(config: Config) -> (World, LinkId) {
    let nodes = vec![known(1, 1, None), known(2, 2, None)];
    let mut w = World::with_config(3, nodes, config);
    let link = w.rejoin(1, 1);
    w.tell(link, vec![NodeItem::InventoryEnd]);
    w.pass(1_000);
    (w, link)
}

fn old() -> Version {
    version(2, 5)
}

fn cancel(w: &mut World, version: Version) -> Cancelled {
    let request = Request::Cancel {
        tenant: tenant(),
        keys: keys(&["k"]),
        versions: vec![version],
    };
    match w.call(request) {
        Reply::Cancelled(mut all) => all.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_replace_waits_for_the_old_version_that_only_an_absent_node_knows() {
    let (mut w, link) = restarted(Config::default());
    // Node 2 serves version 5 of the former term to readers that have its location. The master has never
    // heard of it: to it, this is the first put of the key. The caller asked for a replace.
    let v = w.replace_at(1, "k");
    assert_eq!(w.tell(link, vec![publish("k", v)]), [ItemResult::Pending]);
    let seq = w.last_seq(link);
    // New readers find it at once. Its writer must not hear of success while the old one is served.
    assert_eq!(w.found("k"), Some(v));
    assert_eq!(w.marks(), 1);
    assert!(
        matches!(cancel(&mut w, v), Cancelled::Failed(f) if f.code == Code::UnavailableInStatus)
    );
    w.pass(SERVING - 1_000 - 100);
    assert_eq!(w.acked(link, seq), [ItemResult::Pending]);
    w.pass(200);
    assert_eq!(w.acked(link, seq), [ItemResult::Pending, ItemResult::Ok]);
    assert_eq!(cancel(&mut w, v), Cancelled::Published);
    // Back again, node 2 serves nothing before it has retired what it missed the end of.
    w.clear();
    let other = w.rejoin(2, 2);
    assert!(w.sent(other).iter().any(|m| matches!(
        m,
        ToNode::Registered {
            stamp: Stamp(0),
            ..
        }
    )));
    assert_eq!(
        w.tell(other, vec![told("k", old(), true)]),
        [ItemResult::Refused]
    );
    assert_eq!(w.retired(other), [old()]);
    assert_eq!(w.found("k"), Some(v));
}

#[test]
fn a_replace_is_answered_when_the_late_inventory_has_been_told_and_obeyed() {
    let (mut w, link) = restarted(Config::default());
    let v = w.replace_at(1, "k");
    w.tell(link, vec![publish("k", v)]);
    let seq = w.last_seq(link);
    let other = w.rejoin(2, 2);
    assert_eq!(
        w.tell(other, vec![told("k", old(), true), NodeItem::InventoryEnd]),
        [ItemResult::Refused, ItemResult::Ok]
    );
    assert_eq!(w.acked(link, seq), [ItemResult::Pending]);
    w.tell(other, vec![absent("k", old())]);
    assert_eq!(w.acked(link, seq), [ItemResult::Pending, ItemResult::Ok]);
}

#[test]
fn a_first_put_needs_the_mark_only() {
    let (mut w, link) = restarted(Config::default());
    let v = w.place("k", item(SIZE, 1));
    w.tell(link, vec![publish("k", v)]);
    let seq = w.last_seq(link);
    assert_eq!(w.acked(link, seq), [ItemResult::Pending, ItemResult::Ok]);
    assert_eq!(w.marks(), 1);
}

#[test]
fn a_replace_is_not_forgotten_when_there_is_no_room_to_wait() {
    let config = Config {
        waits_max: 0,
        ..Config::default()
    };
    let (mut w, link) = restarted(config);
    let v = w.replace_at(1, "k");
    for _ in 0..3 {
        // The node asks again under a fresh number.
        assert_eq!(w.tell(link, vec![publish("k", v)]), [ItemResult::Pending]);
    }
    w.pass(SERVING);
    assert_eq!(w.tell(link, vec![publish("k", v)]), [ItemResult::Ok]);
}

#[test]
fn every_replica_of_a_replace_waits() {
    let nodes = vec![known(1, 1, None), known(2, 2, None), known(3, 3, None)];
    let mut w = World::restored(3, nodes);
    let links = [w.rejoin(1, 1), w.rejoin(3, 3)];
    for link in links {
        w.tell(link, vec![NodeItem::InventoryEnd]);
    }
    w.pass(1_000);
    let replace = Reserve {
        mode: PutMode::Replace,
        ..item(SIZE, 2)
    };
    let v = w.place("k", replace);
    for link in links {
        assert_eq!(w.tell(link, vec![publish("k", v)]), [ItemResult::Pending]);
    }
    let seqs = links.map(|link| w.last_seq(link));
    w.pass(SERVING);
    for (link, seq) in links.into_iter().zip(seqs) {
        assert_eq!(w.acked(link, seq).last(), Some(&ItemResult::Ok));
    }
}

#[test]
fn a_put_that_began_under_a_former_leadership_counts_as_a_replace() {
    let nodes = vec![known(1, 1, None), known(2, 2, None)];
    let mut w = World::restored(3, nodes);
    let link = w.rejoin(1, 1);
    // Nobody knows any more what its writer, who still waits for the answer, asked for.
    let late = version(2, 9);
    assert_eq!(
        w.tell(link, vec![told("k", late, false)]),
        [ItemResult::Pending]
    );
    let seq = w.last_seq(link);
    w.tell(link, vec![NodeItem::InventoryEnd]);
    w.pass(1_500);
    assert_eq!(w.found("k"), Some(late));
    assert_eq!(w.acked(link, seq), [ItemResult::Pending]);
    w.pass(SERVING);
    assert_eq!(w.acked(link, seq), [ItemResult::Pending, ItemResult::Ok]);
}

#[test]
fn a_replace_that_was_evicted_and_told_again_is_still_one() {
    let (mut w, link) = restarted(Config::default());
    let v = w.replace_at(1, "k");
    assert_eq!(w.tell(link, vec![retract("k", v)]), [ItemResult::Ok]);
    w.lose(link);
    let link = w.rejoin(1, 1);
    assert_eq!(
        w.tell(link, vec![told("k", v, false)]),
        [ItemResult::Pending]
    );
    let seq = w.last_seq(link);
    assert_eq!(w.acked(link, seq), [ItemResult::Pending]);
    w.pass(SERVING);
    assert_eq!(w.acked(link, seq).last(), Some(&ItemResult::Ok));
}

#[test]
fn a_node_that_stood_still_serves_again_only_after_it_obeyed_a_lost_order() {
    let (mut w, links) = World::nodes(1);
    let link = links[0];
    let v = w.put(link, 1, "k");
    w.pongs.insert(link, false);
    let id = w.ask(World::remove_request(&["k"], true));
    w.pass(6_500);
    // Answered on the strength of its silence. Its session has not ended, the order may have got lost.
    assert_eq!(w.removed(id), Some(vec![0]));
    w.clear();
    w.pongs.insert(link, true);
    w.pass(2_000);
    let confirms = |w: &World| {
        let sent = w.sent(link).into_iter();
        let pings = sent.filter_map(|m| match m {
            ToNode::Ping { confirmed, .. } => Some(confirmed.0),
            _ => None,
        });
        pings.last()
    };
    assert!(w.retired(link).contains(&v));
    assert_eq!(confirms(&w), Some(0));
    w.tell(link, vec![absent("k", v)]);
    assert_ne!(confirms(&w), Some(0));
}

fn sweep(prefix: &str) -> Request {
    Request::RemoveMany {
        tenant: Some(tenant()),
        filter: Filter::Prefix(prefix.as_bytes().to_vec()),
        force: true,
    }
}

fn swept(w: &World, id: crate::event::RequestId) -> Option<u64> {
    match w.answer(id)? {
        Reply::RemovedMany { removed, .. } => Some(removed),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sweep_removes_what_a_late_node_tells_and_waits_until_it_obeyed() {
    let (mut w, _) = restarted(Config::default());
    let id = w.ask(sweep("a"));
    assert_eq!(swept(&w, id), None);
    let other = w.rejoin(2, 2);
    let items = vec![
        told("a1", old(), true),
        told("b1", version(2, 6), true),
        NodeItem::InventoryEnd,
    ];
    assert_eq!(
        w.tell(other, items),
        [ItemResult::Refused, ItemResult::Ok, ItemResult::Ok]
    );
    assert_eq!((w.found("a1"), w.found("b1")), (None, Some(version(2, 6))));
    assert_eq!(w.retired(other), [old()]);
    assert_eq!(swept(&w, id), None);
    w.tell(other, vec![absent("a1", old())]);
    assert_eq!(swept(&w, id), Some(1));
}

#[test]
fn a_sweep_is_answered_when_the_absent_node_has_stopped_and_is_remembered_for_it() {
    let (mut w, link) = restarted(Config::default());
    let id = w.ask(sweep("a"));
    w.pass(SERVING - 1_000 - 100);
    assert_eq!(swept(&w, id), None);
    w.pass(200);
    assert_eq!(swept(&w, id), Some(0));
    assert_eq!(w.marks(), 1);
    // A put of this term is newer than any sweep.
    let v = w.put(link, 1, "a2");
    let other = w.rejoin(2, 2);
    let items = vec![told("a1", old(), true), told("a2", version(2, 7), false)];
    assert_eq!(
        w.tell(other, items),
        [ItemResult::Refused, ItemResult::Refused]
    );
    assert_eq!((w.found("a1"), w.found("a2")), (None, Some(v)));
}

#[test]
fn sweeps_that_are_remembered_have_a_bound_and_equal_ones_count_once() {
    let (mut w, _) = restarted(Config::default());
    w.pass(SERVING);
    for n in 0..2 * crate::remembered::REMEMBERED_MAX {
        let id = w.ask(sweep(&format!("p{}", n / 2)));
        assert_eq!(swept(&w, id), Some(0));
    }
    let id = w.ask(sweep("p0"));
    assert_eq!(swept(&w, id), Some(0));
    let refused = w.call(sweep("more"));
    assert!(matches!(refused, Reply::Failed(f) if f.code == Code::UnavailableInStatus));
}

#[test]
fn a_node_is_not_given_up_before_it_has_stopped_and_is_marked() {
    let config = Config {
        bare_max: 10,
        ..Config::default()
    };
    let (mut w, _) = restarted(config);
    w.disk_ok = false;
    let ids: Vec<_> = (0..15)
        .map(|n| w.ask(World::remove_request(&[&format!("k{n}")], true)))
        .collect();
    w.pass(1_000);
    // The mark could not be written: all of them say that an owner may bring the object back.
    assert!(ids.iter().all(|id| w.removed(*id) == Some(vec![-1503])));
    assert_eq!(w.d.gauges().entries, 15);
    w.disk_ok = true;
    w.pass(2_500);
    assert_eq!(w.d.gauges().entries, 15);
    w.pass(SERVING);
    assert_eq!(w.d.gauges().entries, 0);
    let other = w.rejoin(2, 2);
    assert_eq!(
        w.tell(other, vec![told("k3", old(), true)]),
        [ItemResult::Refused]
    );
}
