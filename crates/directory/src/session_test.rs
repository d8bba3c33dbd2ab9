//! Registrations, sessions, numbers, pings, health.

use crate::effect::{Counter, Effect, KnownNode, Record};
use crate::event::{Event, LinkId};
use crate::testkit::*;
use snowskin_types::call::*;
use snowskin_types::error::Code;
use snowskin_types::id::{ClusterId, Epoch, Term};
use snowskin_types::limits::*;
use snowskin_types::link::{FromNode, ItemResult, NodeFigures, NodeItem, Stamp, ToNode};
use snowskin_types::time::{Millis, Now};

fn refusals(w: &World, link: LinkId) -> Vec<(Code, bool)> {
    let sent = w.sent(link).into_iter();
    sent.filter_map(|m| match m {
        ToNode::Refused { failure, retry } => Some((failure.code, retry)),
        _ => None,
    })
    .collect()
}

fn closed(w: &World, link: LinkId) -> bool {
    w.effects.contains(&Effect::Close { link })
}

fn confirmed(w: &World, link: LinkId) -> Vec<u64> {
    let sent = w.sent(link).into_iter();
    sent.filter_map(|m| match m {
        ToNode::Registered { stamp, .. } => Some(stamp.0),
        ToNode::Ping { confirmed, .. } => Some(confirmed.0),
        _ => None,
    })
    .collect()
}

fn state(w: &World, n: u64) -> Option<NodeState> {
    let stat = w.d.stat();
    let node = stat.nodes.iter().find(|s| s.place.node == node_id(n))?;
    Some(node.state)
}

#[test]
fn a_session_begins_after_the_node_record_is_written() {
    let mut w = World::new();
    w.hold_disk = true;
    let register = w.register(1, 5);
    let link = w.link(register);
    assert!(w.sent(link).is_empty());
    assert!(matches!(
        w.records[..],
        [(
            _,
            Record::Node {
                epoch: Epoch(5),
                ..
            }
        )]
    ));
    w.answer_disk(true);
    assert!(matches!(
        w.sent(link)[0],
        ToNode::Registered { session, serving: SERVING_LEASE, .. } if session.term == Term(1)
    ));
}

#[test]
fn a_record_that_cannot_be_written_refuses_the_registration() {
    let mut w = World::new();
    w.disk_ok = false;
    let register = w.register(1, 5);
    let link = w.link(register);
    assert_eq!(refusals(&w, link), [(Code::PersistentFail, true)]);
    assert!(closed(&w, link));
    assert!(w.d.stat().nodes.is_empty());
}

#[test]
fn a_known_record_is_not_written_again() {
    let (mut w, links) = World::nodes(1);
    w.records.clear();
    w.lose(links[0]);
    w.rejoin(1, 1);
    assert!(w.records.is_empty());
}

#[test]
fn foreign_clusters_later_terms_and_empty_addresses_are_refused() {
    let mut w = World::new();
    let mut foreign = w.register(1, 1);
    foreign.cluster = Some(ClusterId(8));
    let link = w.link(foreign);
    assert_eq!(refusals(&w, link), [(Code::InvalidVersion, false)]);
    let mut later = w.register(1, 1);
    later.last_session.term = Term(2);
    let link = w.link(later);
    assert_eq!(refusals(&w, link), [(Code::UnavailableInStatus, true)]);
    let mut nowhere = w.register(1, 1);
    nowhere.address = "".into();
    let link = w.link(nowhere);
    assert_eq!(refusals(&w, link), [(Code::InvalidParams, false)]);
}

#[test]
fn a_second_live_process_on_one_address_is_refused_until_the_first_is_silent() {
    let (mut w, links) = World::nodes(1);
    w.pass(1_000);
    let other = w.register(1, 2);
    let link = w.link(other.clone());
    assert_eq!(refusals(&w, link), [(Code::SegmentAlreadyExists, true)]);
    assert!(!closed(&w, links[0]));
    w.pongs.clear();
    w.pass(3_500);
    let link = w.link(other);
    assert!(refusals(&w, link).is_empty());
    assert!(closed(&w, links[0]));
}

#[test]
fn a_new_connection_of_the_same_process_fences_the_old_one() {
    let (mut w, links) = World::nodes(1);
    let v = w.place("k", item(SIZE, 1));
    let link = w.rejoin(1, 1);
    assert!(closed(&w, links[0]));
    assert!(w.tell(links[0], vec![publish("k", v)]).is_empty());
    assert_eq!(w.counted(Counter::Fenced), 1);
    assert_eq!(w.tell(link, vec![publish("k", v)]), [ItemResult::Ok]);
}

#[test]
fn a_second_registration_on_a_connection_ends_it() {
    let (mut w, links) = World::nodes(1);
    let register = w.register(1, 1);
    let message = FromNode::Register(register);
    w.feed(Event::Node {
        link: links[0],
        message,
    });
    assert!(closed(&w, links[0]));
}

#[test]
fn old_numbers_are_ignored_without_an_answer() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    let seq = w.last_seq(links[0]);
    w.tell(links[0], vec![retract("k", v), absent("k", v)]);
    w.clear();
    assert!(w.tell_at(links[0], seq, vec![publish("k", v)]).is_empty());
    assert_eq!(w.exists("k"), Existing::No);
    assert_eq!(w.counted(Counter::Fenced), 1);
}

#[test]
fn a_batch_with_too_many_items_ends_the_session() {
    let (mut w, links) = World::nodes(1);
    let items = vec![absent("k", version(1, 1)); NODE_BATCH_ITEMS_MAX + 1];
    assert!(w.tell(links[0], items).is_empty());
    assert!(closed(&w, links[0]));
}

#[test]
fn claims_survive_a_lost_session_and_the_inventory_repairs_ghosts() {
    let (mut w, links) = World::nodes(1);
    let kept = w.put(links[0], 1, "kept");
    let ghost = w.put(links[0], 1, "ghost");
    w.lose(links[0]);
    assert_eq!(w.found("kept"), Some(kept));
    assert_eq!(w.found("ghost"), Some(ghost));
    let link = w.rejoin(1, 1);
    assert_eq!(
        w.tell(link, vec![told("kept", kept, true)]),
        [ItemResult::Ok]
    );
    assert_eq!(w.found("ghost"), Some(ghost));
    w.tell(link, vec![NodeItem::InventoryEnd]);
    assert_eq!(w.found("kept"), Some(kept));
    assert_eq!(w.found("ghost"), None);
    assert_eq!(w.counted(Counter::GhostRepaired), 1);
}

#[test]
fn a_new_process_voids_what_the_old_one_held() {
    let (mut w, links) = World::nodes(2);
    w.put(links[0], 1, "a");
    let b = w.put(links[1], 2, "b");
    let placed = w.place("c", {
        let mut it = item(SIZE, 1);
        it.preferred = vec![node_id(1)];
        it
    });
    w.lose(links[0]);
    let link = w.join(1, 9);
    assert_eq!(w.found("a"), None);
    assert_eq!(w.found("b"), Some(b));
    assert_eq!(
        w.tell(link, vec![publish("c", placed)]),
        [ItemResult::Refused]
    );
    w.tell(link, vec![absent("c", placed)]);
    let gauges = w.d.gauges();
    assert_eq!(
        (gauges.entries, gauges.objects, gauges.obligations),
        (1, 1, 0)
    );
}

#[test]
fn a_remove_that_waits_for_a_dead_process_is_answered_at_its_successors_registration() {
    let (mut w, links) = World::nodes(1);
    w.put(links[0], 1, "k");
    let id = w.ask(World::remove_request(&["k"], true));
    w.lose(links[0]);
    assert_eq!(w.answer(id), None);
    w.join(1, 2);
    assert_eq!(w.removed(id), Some(vec![0]));
}

#[test]
fn pings_confirm_the_last_pong_and_go_out_every_half_second() {
    let (mut w, links) = World::nodes(1);
    let start = w.now.0;
    w.clear();
    w.pass(2_000);
    let stamps = confirmed(&w, links[0]);
    assert_eq!(stamps.len(), 4);
    assert!(stamps.windows(2).all(|s| s[0] < s[1]));
    assert_eq!(stamps.last(), Some(&(start + 1_500)));
}

#[test]
fn a_silent_node_becomes_suspect_then_gone_and_comes_back() {
    let (mut w, links) = World::nodes(2);
    let v = w.put(links[0], 1, "k");
    w.pongs.insert(links[0], false);
    w.pass(3_600);
    assert_eq!(state(&w, 1), Some(NodeState::Suspect));
    let (_, places) = w.reserve(&["x"], item(SIZE, 2));
    assert_eq!(places, [node_id(2)]);
    assert_eq!(w.found("k"), Some(v));
    w.pass(7_000);
    assert_eq!(state(&w, 1), Some(NodeState::Gone));
    assert_eq!(w.found("k"), None);
    assert_eq!(w.d.stat().objects, 0);
    w.pongs.insert(links[0], true);
    w.pass(1_000);
    assert_eq!(state(&w, 1), Some(NodeState::Alive));
    assert_eq!(w.found("k"), Some(v));
}

#[test]
fn a_broken_link_makes_suspect_at_once_and_replicas_of_suspects_come_last() {
    let (mut w, links) = World::nodes(2);
    let v = w.place("k", item(SIZE, 2));
    for link in &links {
        w.tell(*link, vec![publish("k", v)]);
    }
    w.lose(links[0]);
    assert_eq!(state(&w, 1), Some(NodeState::Suspect));
    for _ in 0..10 {
        match w.call(World::locate_request(&["k"])) {
            Reply::Located { places, items } => match &items[0] {
                Located::Found { replicas, .. } => {
                    let first = &places[replicas[0].place as usize];
                    assert_eq!((replicas.len(), first.node), (2, node_id(2)));
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_master_that_stood_still_starts_all_silences_anew() {
    let (mut w, _) = World::nodes(1);
    w.now = Now(w.now.0 + 20_000);
    w.feed(Event::Tick);
    assert_eq!(state(&w, 1), Some(NodeState::Alive));
    assert_eq!(w.counted(Counter::SelfDoubt), 1);
}

#[test]
fn a_remove_waits_for_the_serving_lease_of_an_absent_owner_and_for_its_mark() {
    let (mut w, links) = World::nodes(1);
    w.put(links[0], 1, "k");
    w.pass(1_000);
    let last = w.now;
    w.lose(links[0]);
    w.hold_disk = true;
    let id = w.ask(World::remove_request(&["k"], true));
    assert_eq!(w.marks(), 1);
    w.pass(5_500);
    assert!(w.now.since(last) > Millis(5_250));
    assert_eq!(w.answer(id), None);
    w.answer_disk(true);
    assert_eq!(w.removed(id), Some(vec![0]));
    // The next one finds the mark there and the node stopped.
    let id = w.ask(World::remove_request(&["k"], true));
    assert_eq!(w.removed(id), Some(vec![-704]));
    assert_eq!(w.marks(), 1);
}

#[test]
fn a_remove_is_not_answered_before_the_serving_lease_is_over() {
    let (mut w, links) = World::nodes(1);
    w.put(links[0], 1, "k");
    w.pass(1_000);
    let last_stamp = w.now;
    w.lose(links[0]);
    let id = w.ask(World::remove_request(&["k"], true));
    while w.answer(id).is_none() {
        w.pass(100);
        assert!(w.now.since(last_stamp).0 < 6_000);
    }
    // The last confirmed stamp may be one ping older than the last pong.
    assert!(w.now.since(last_stamp) >= Millis(4_700));
}

#[test]
fn a_mark_that_cannot_be_written_fails_the_remove_and_a_later_one_tries_again() {
    let (mut w, links) = World::nodes(1);
    w.put(links[0], 1, "k");
    w.lose(links[0]);
    w.disk_ok = false;
    let id = w.ask(World::remove_request(&["k"], true));
    assert_eq!(w.removed(id), Some(vec![-1503]));
    assert_eq!(w.exists("k"), Existing::No);
    w.disk_ok = true;
    w.pass(6_000);
    let id = w.ask(World::remove_request(&["k"], true));
    assert_eq!(w.removed(id), Some(vec![-704]));
    assert_eq!(w.marks(), 2);
}

#[test]
fn a_returning_owner_is_told_to_retire_before_it_may_serve_again() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.lose(links[0]);
    w.pass(6_000);
    let id = w.ask(World::remove_request(&["k"], true));
    // It was hidden by then, and is removed all the same.
    assert_eq!(w.removed(id), Some(vec![-704]));
    w.clear();
    let link = w.rejoin(1, 1);
    let sent = w.sent(link);
    let retire = sent.iter().position(|m| matches!(m, ToNode::Retire { .. }));
    assert!(matches!(
        sent[0],
        ToNode::Registered {
            stamp: Stamp(0),
            ..
        }
    ));
    assert!(retire.is_some());
    assert!(confirmed(&w, link).iter().all(|c| *c == 0));
    // Its old item is refused; with the end of the inventory and its obedience it serves again.
    assert_eq!(
        w.tell(link, vec![told("k", v, true)]),
        [ItemResult::Refused]
    );
    w.tell(link, vec![NodeItem::InventoryEnd]);
    w.pass(1_000);
    assert!(confirmed(&w, link).iter().all(|c| *c == 0));
    let cleared = |w: &World| {
        let mut all = w.records.iter();
        all.any(|(_, r)| matches!(r, Record::ClearMark { .. }))
    };
    assert!(!cleared(&w));
    w.tell(link, vec![absent("k", v)]);
    assert_ne!(confirmed(&w, link).last(), Some(&0));
    assert!(cleared(&w));
}

#[test]
fn a_long_absent_node_is_forgotten_and_its_old_life_is_refused() {
    let (mut w, links) = World::nodes(2);
    let v = w.put(links[0], 1, "k");
    w.lose(links[0]);
    w.pass(600_500);
    assert_eq!(state(&w, 1), None);
    assert!(
        w.records
            .iter()
            .any(|(_, r)| matches!(r, Record::Forget { .. }))
    );
    assert_eq!(w.counted(Counter::NodesForgotten), 1);
    assert_eq!(w.d.gauges().entries, 0);
    w.records.clear();
    w.clear();
    let link = w.rejoin(1, 1);
    assert!(matches!(w.records[0].1, Record::Mark { .. }));
    assert!(matches!(
        w.sent(link)[0],
        ToNode::Registered {
            stamp: Stamp(0),
            ..
        }
    ));
    assert_eq!(
        w.tell(link, vec![told("k", v, true)]),
        [ItemResult::Refused]
    );
    assert_eq!(w.retired(link), [v]);
    w.tell(link, vec![absent("k", v), NodeItem::InventoryEnd]);
    assert!(matches!(
        w.records.last(),
        Some((_, Record::ClearMark { .. }))
    ));
    let v2 = w.put(link, 1, "k");
    assert_eq!(w.found("k"), Some(v2));
}

#[test]
fn a_node_forgotten_by_a_former_leadership_is_not_waited_for() {
    let forgotten = KnownNode {
        forgotten: true,
        ..known(1, 1, None)
    };
    let mut w = World::restored(3, vec![forgotten]);
    assert!(w.d.ready());
    let link = w.rejoin(1, 1);
    let old = version(2, 9);
    assert_eq!(
        w.tell(link, vec![told("k", old, true)]),
        [ItemResult::Refused]
    );
}

#[test]
fn sessions_that_never_end_their_inventory_can_go_on_for_ever() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    let mut link = links[0];
    for _ in 0..600 {
        w.lose(link);
        w.clear();
        link = w.rejoin(1, 1);
    }
    assert!(refusals(&w, link).is_empty());
    assert_eq!(w.found("k"), Some(v));
    w.tell(link, vec![NodeItem::InventoryEnd]);
    assert_eq!(w.found("k"), None);
}

#[test]
fn a_node_that_fell_silent_in_its_inventory_serves_again_only_after_its_end() {
    let mut w = World::restored(3, vec![known(1, 1, None), known(2, 2, None)]);
    let (a, b) = (w.rejoin(1, 1), w.rejoin(2, 2));
    let v = version(2, 5);
    w.tell(b, vec![told("k", v, true), NodeItem::InventoryEnd]);
    w.pongs.insert(a, false);
    let id = w.ask(World::remove_request(&["k"], true));
    w.tell(b, vec![absent("k", v)]);
    w.pass(5_000);
    assert_eq!(w.answer(id), None);
    w.pass(1_000);
    // Node 1 has stopped and is marked; it may hold a copy that it has not told.
    assert_eq!(w.removed(id), Some(vec![0]));
    w.clear();
    w.pongs.insert(a, true);
    w.pass(2_000);
    assert!(confirmed(&w, a).iter().all(|c| *c == 0));
    assert_eq!(w.tell(a, vec![told("k", v, true)]), [ItemResult::Refused]);
    w.tell(a, vec![NodeItem::InventoryEnd]);
    assert!(confirmed(&w, a).iter().all(|c| *c == 0));
    w.tell(a, vec![absent("k", v)]);
    assert_ne!(confirmed(&w, a).last(), Some(&0));
}

fn told_waits(w: &mut World, link: LinkId, put_waited: u64) {
    let node = w.d.stat().nodes[0].place.node;
    let session =
        w.d.inspect()
            .nodes
            .iter()
            .find(|n| n.node == node)
            .unwrap()
            .session;
    let message = FromNode::Pong {
        session: session.unwrap(),
        nonce: 0,
        stamp: Stamp(w.now.0),
        used: 0,
        largest_free: CAPACITY,
        policy: None,
        figures: Some(NodeFigures {
            held: 7,
            put_waited,
            ..NodeFigures::default()
        }),
    };
    w.feed(Event::Node { link, message });
}

#[test]
fn what_nodes_did_adds_up_over_their_lives() {
    let (mut w, links) = World::nodes(1);
    assert_eq!(w.d.stat().nodes[0].figures, None, "nothing was told yet");
    told_waits(&mut w, links[0], 3);
    told_waits(&mut w, links[0], 3);
    told_waits(&mut w, links[0], 5);
    assert_eq!(w.counted(Counter::PutWaited), 5);
    w.pass(100);
    let node = w.d.stat().nodes[0].clone();
    assert_eq!(node.figures.unwrap().held, 7);
    assert_eq!(node.figures_age, Millis(100));
    w.lose(links[0]);
    let again = w.rejoin(1, 2);
    assert_eq!(
        w.d.stat().nodes[0].figures,
        None,
        "another life has told nothing"
    );
    told_waits(&mut w, again, 2);
    assert_eq!(w.counted(Counter::PutWaited), 7);
}

#[test]
fn what_a_node_owes_and_what_it_is_named_for_are_in_its_stat() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    let node = w.d.stat().nodes[0].clone();
    assert_eq!((node.replicas, node.owed), (1, 0));
    assert_eq!(node.replica_bytes, w.d.stat().bytes);
    w.tell(links[0], vec![retract("k", v)]);
    let node = w.d.stat().nodes[0].clone();
    assert_eq!((node.replicas, node.replica_bytes, node.owed), (0, 0, 1));
    w.tell(links[0], vec![absent("k", v)]);
    assert_eq!(w.d.stat().nodes[0].owed, 0);
}

/// The planted fault shows: a publish that a retract overtook names bytes that are gone.
#[cfg(known_bugs)]
#[test]
fn without_numbers_a_late_publish_makes_a_ghost() {
    let (mut w, links) = World::nodes(1);
    w.d.plant(crate::bugs::Bugs {
        no_sequence_numbers: true,
    });
    let v = w.put(links[0], 1, "k");
    let seq = w.last_seq(links[0]);
    w.tell(links[0], vec![retract("k", v), absent("k", v)]);
    w.tell_at(links[0], seq, vec![publish("k", v)]);
    assert_eq!(w.found("k"), Some(v));
}

fn leave(w: &mut World, link: LinkId) {
    let session = w.sessions.get(&link).copied().unwrap_or_default();
    let message = FromNode::Leave { session };
    w.feed(Event::Node { link, message });
}

#[test]
fn a_node_that_leaves_is_gone_at_once_and_leaves_nothing_behind() {
    let (mut w, links) = World::nodes(2);
    w.put(links[0], 1, "k");
    let v = w.put(links[1], 2, "stays");
    leave(&mut w, links[0]);
    assert_eq!(w.exists("k"), Existing::No);
    assert_eq!(w.found("k"), None);
    assert_eq!(w.found("stays"), Some(v));
    assert_eq!(state(&w, 1), None);
    assert!(matches!(w.records.last(), Some((_, Record::Left { .. }))));
    w.pass(1_000);
    assert_eq!(w.d.gauges().entries, 1);
    assert_eq!(w.counted(Counter::NodesLeft), 1);
    assert_eq!(w.counted(Counter::NodesForgotten), 0);
    // Its address may be used by another process at once.
    w.join(1, 2);
    assert_eq!(state(&w, 1), Some(NodeState::Alive));
}

#[test]
fn a_forced_remove_waits_for_no_node_that_has_left() {
    let (mut w, links) = World::nodes(2);
    w.put(links[0], 1, "k");
    w.exists("k");
    let id = w.ask(World::remove_request(&["k"], true));
    assert_eq!(w.removed(id), None);
    leave(&mut w, links[0]);
    assert_eq!(w.removed(id), Some(vec![0]));
}

#[test]
fn a_node_that_leaves_stays_hidden_while_its_record_cannot_be_written() {
    let (mut w, links) = World::nodes(2);
    w.put(links[0], 1, "k");
    w.disk_ok = false;
    leave(&mut w, links[0]);
    w.pass(400);
    assert_eq!(w.exists("k"), Existing::No);
    assert_eq!(state(&w, 1), Some(NodeState::Gone));
    w.disk_ok = true;
    w.pass(20_000);
    assert_eq!(state(&w, 1), None);
}

#[test]
fn a_leave_of_a_former_session_is_ignored() {
    let (mut w, links) = World::nodes(2);
    w.put(links[0], 1, "k");
    let session = w.sessions.get(&links[0]).copied().unwrap_or_default();
    w.lose(links[0]);
    let link = w.rejoin(1, 1);
    let message = FromNode::Leave { session };
    w.feed(Event::Node { link, message });
    assert_eq!(state(&w, 1), Some(NodeState::Alive));
    assert_eq!(w.counted(Counter::NodesLeft), 0);
}

#[test]
fn a_node_whose_link_broke_is_hidden_soon_and_shown_when_it_comes_back() {
    let (mut w, links) = World::nodes(2);
    let v = w.put(links[0], 1, "k");
    w.lose(links[0]);
    w.pass(1_000);
    assert_eq!(state(&w, 1), Some(NodeState::Suspect));
    assert_ne!(w.exists("k"), Existing::No);
    w.pass(1_000);
    assert_eq!(state(&w, 1), Some(NodeState::Gone));
    assert_eq!(w.exists("k"), Existing::No);
    let link = w.rejoin(1, 1);
    w.tell(link, vec![told("k", v, true), NodeItem::InventoryEnd]);
    assert_eq!(w.found("k"), Some(v));
}
