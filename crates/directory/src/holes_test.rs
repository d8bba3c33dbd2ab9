//! The schedules in which earlier texts of the protocol went wrong, as the master sees them.

use crate::effect::{Counter, Record};
use crate::testkit::*;
use snowskin_types::call::*;
use snowskin_types::link::{ItemResult, NodeItem};
use snowskin_types::object::Attributes;
use snowskin_types::time::Millis;

/// A master of term 3 that knows nodes `1..=n`, of which none has registered.
fn restarted(n: u64) -> World {
    World::restored(3, (1..=n).map(|i| known(i, i, None)).collect())
}

fn old(counter: u64) -> snowskin_types::version::Version {
    version(2, counter)
}

#[test]
fn h1_a_remove_refuses_the_inventory_item_that_races_it() {
    let mut w = restarted(1);
    let link = w.rejoin(1, 1);
    w.pass(1_000);
    // The item is under way; nothing is known of the key yet.
    let id = w.ask(World::remove_request(&["k"], true));
    assert_eq!(w.answer(id), None);
    assert_eq!(
        w.tell(link, vec![told("k", old(5), true)]),
        [ItemResult::Refused]
    );
    assert_eq!(w.found("k"), None);
    assert_eq!(w.retired(link), [old(5)]);
    w.tell(link, vec![NodeItem::InventoryEnd]);
    assert_eq!(w.answer(id), None);
    w.tell(link, vec![absent("k", old(5))]);
    assert_eq!(w.removed(id), Some(vec![-704]));
}

#[test]
fn h2_a_mark_of_an_older_term_refuses_older_items_and_newer_ones_pass() {
    let mut w = World::restored(3, vec![known(1, 1, Some(2)), known(2, 2, None)]);
    let marked = w.rejoin(1, 1);
    let clean = w.rejoin(2, 2);
    assert_eq!(
        w.tell(clean, vec![told("b", old(5), true)]),
        [ItemResult::Ok]
    );
    assert_eq!(
        w.tell(marked, vec![told("a", old(5), true)]),
        [ItemResult::Refused]
    );
    assert_eq!(w.retired(marked), [old(5)]);
    w.tell(marked, vec![NodeItem::InventoryEnd]);
    assert!(
        !w.records
            .iter()
            .any(|(_, r)| matches!(r, Record::ClearMark { .. }))
    );
    w.tell(marked, vec![absent("a", old(5))]);
    assert!(
        w.records
            .iter()
            .any(|(_, r)| matches!(r, Record::ClearMark { .. }))
    );
    w.tell(clean, vec![NodeItem::InventoryEnd]);
    w.pass(1_000);
    let v = w.put(marked, 1, "new");
    assert_eq!(w.found("new"), Some(v));
}

#[test]
fn h2_a_node_that_has_not_registered_in_this_term_is_marked_before_a_remove_is_answered() {
    let mut w = restarted(2);
    let link = w.rejoin(2, 2);
    w.tell(link, vec![told("k", old(5), true), NodeItem::InventoryEnd]);
    w.pass(1_000);
    let id = w.ask(World::remove_request(&["k"], true));
    w.tell(link, vec![absent("k", old(5))]);
    // Node 1 may hold a copy, and may serve it until its lease of the former master ends.
    assert_eq!(w.answer(id), None);
    w.pass(5_000);
    assert_eq!(w.removed(id), Some(vec![0]));
    assert_eq!(w.marks(), 1);
    // In the same term, memory decides per item.
    let link = w.rejoin(1, 1);
    let results = w.tell(link, vec![told("k", old(5), true), told("j", old(4), true)]);
    assert_eq!(results, [ItemResult::Refused, ItemResult::Ok]);
}

#[test]
fn h3_a_granted_retract_is_an_obligation_until_the_owner_says_absent() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    assert_eq!(w.tell(links[0], vec![retract("k", v)]), [ItemResult::Ok]);
    let id = w.ask(World::remove_request(&["k"], false));
    assert_eq!(w.answer(id), None);
    assert_eq!(w.retired(links[0]), [v]);
    w.tell(links[0], vec![absent("k", v)]);
    assert_eq!(w.removed(id), Some(vec![-704]));
}

#[test]
fn h4_a_remove_waits_for_every_node_the_version_was_placed_on() {
    let (mut w, links) = World::nodes(2);
    let v = w.place("k", item(SIZE, 2));
    assert_eq!(w.tell(links[0], vec![publish("k", v)]), [ItemResult::Ok]);
    let id = w.ask(World::remove_request(&["k"], true));
    w.tell(links[0], vec![absent("k", v)]);
    assert_eq!(w.answer(id), None);
    assert_eq!(w.retired(links[1]), [v]);
    assert_eq!(
        w.tell(links[1], vec![publish("k", v)]),
        [ItemResult::Refused]
    );
    w.tell(links[1], vec![absent("k", v)]);
    assert_eq!(w.removed(id), Some(vec![0]));
}

#[test]
fn h5_a_version_of_this_term_is_refused_where_it_was_not_placed() {
    let (mut w, links) = World::nodes(2);
    let v = w.put(links[0], 1, "k");
    assert_eq!(
        w.tell(links[1], vec![publish("k", v)]),
        [ItemResult::Refused]
    );
    w.tell(links[1], vec![absent("k", v)]);
    // Evicted and written again by a duplicate: the key is not even known any more.
    w.tell(links[0], vec![retract("k", v), absent("k", v)]);
    assert_eq!(
        w.tell(links[0], vec![publish("k", v)]),
        [ItemResult::Refused]
    );
    assert_eq!(w.found("k"), None);
}

#[test]
fn h6_an_evicted_version_is_remembered_while_an_older_copy_may_return() {
    let mut w = restarted(2);
    let b = w.rejoin(2, 2);
    w.tell(b, vec![told("k", old(6), true), NodeItem::InventoryEnd]);
    w.pass(1_000);
    let evicted = w.tell(b, vec![retract("k", old(6)), absent("k", old(6))]);
    assert_eq!(evicted, [ItemResult::Ok, ItemResult::Ok]);
    assert_eq!(w.found("k"), None);
    assert_eq!(w.d.gauges().entries, 1);
    let a = w.rejoin(1, 1);
    assert_eq!(
        w.tell(a, vec![told("k", old(5), true)]),
        [ItemResult::Refused]
    );
    w.tell(a, vec![absent("k", old(5)), NodeItem::InventoryEnd]);
    assert_eq!(w.d.gauges().entries, 0);
}

#[test]
fn h6_a_replace_marks_the_absent_owner_of_the_old_version() {
    let (mut w, links) = World::nodes(2);
    w.put(links[0], 1, "k");
    w.pass(1_000);
    w.lose(links[0]);
    let v2 = w.replace_at(2, "k");
    assert_eq!(
        w.tell(links[1], vec![publish("k", v2)]),
        [ItemResult::Pending]
    );
    let seq = w.last_seq(links[1]);
    assert_eq!(w.marks(), 1);
    w.pass(5_300);
    assert_eq!(
        w.acked(links[1], seq),
        [ItemResult::Pending, ItemResult::Ok]
    );
}

#[test]
fn h7_a_reconnect_keeps_epoch_and_locations() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.lose(links[0]);
    let link = w.rejoin(1, 1);
    match w.call(World::locate_request(&["k"])) {
        Reply::Located { places, items } => {
            assert_eq!(places[0].epoch.0, 1);
            assert!(matches!(items[0], Located::Found { version, .. } if version == v));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(w.tell(link, vec![told("k", v, true)]), [ItemResult::Ok]);
}

#[test]
fn h8_leases_outlive_sessions() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.found("k");
    w.lose(links[0]);
    let link = w.rejoin(1, 1);
    w.tell(link, vec![told("k", v, true), NodeItem::InventoryEnd]);
    assert!(matches!(
        w.tell(link, vec![retract("k", v)])[..],
        [ItemResult::Leased(_)]
    ));
}

#[test]
fn h8_a_half_done_retract_is_told_again_and_becomes_a_claim_again() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.tell(links[0], vec![retract("k", v)]);
    w.lose(links[0]);
    let link = w.rejoin(1, 1);
    assert_eq!(w.tell(link, vec![told("k", v, true)]), [ItemResult::Ok]);
    w.tell(link, vec![NodeItem::InventoryEnd]);
    assert_eq!(w.found("k"), Some(v));
    assert_eq!(w.d.gauges().obligations, 0);
}

#[test]
fn h8_a_retracted_version_that_the_inventory_does_not_tell_is_asked_for() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.tell(links[0], vec![retract("k", v)]);
    w.lose(links[0]);
    let link = w.rejoin(1, 1);
    w.tell(link, vec![NodeItem::InventoryEnd]);
    assert_eq!(w.retired(link), [v]);
    w.tell(link, vec![absent("k", v)]);
    assert_eq!(w.d.gauges().entries, 0);
}

#[test]
fn h9_nothing_is_evicted_in_the_grace_of_a_new_master() {
    let mut w = restarted(1);
    let link = w.rejoin(1, 1);
    w.tell(link, vec![told("k", old(5), true), NodeItem::InventoryEnd]);
    assert_eq!(
        w.tell(link, vec![retract("k", old(5)), retract("unknown", old(4))]),
        [
            ItemResult::Held(Millis(1_000)),
            ItemResult::Held(Millis(1_000))
        ]
    );
    w.pass(1_000);
    assert_eq!(
        w.tell(link, vec![retract("k", old(5)), retract("unknown", old(4))]),
        [ItemResult::Ok, ItemResult::Ok]
    );
}

#[test]
fn h10_a_report_hides_and_only_the_owner_erases() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.report("k", v, 1, 1, Fault::Bad);
    assert_eq!(w.exists("k"), Existing::No);
    // The hidden owner still counts.
    let id = w.ask(World::remove_request(&["k"], true));
    assert_eq!(w.answer(id), None);
    assert_eq!(w.retired(links[0]), [v]);
    w.tell(links[0], vec![absent("k", v)]);
    assert_eq!(w.removed(id), Some(vec![-704]));
}

#[test]
fn h11_a_retry_that_an_answer_to_retire_overtook_is_ignored() {
    let mut w = restarted(1);
    w.pass(1_000);
    let link = w.rejoin(1, 1);
    w.ask(World::remove_request(&["k"], true));
    assert_eq!(
        w.tell_at(link, 1, vec![told("k", old(5), true)]),
        [ItemResult::Refused]
    );
    // Number 2 is the retry, still under way; 3 confirms the order.
    w.tell_at(link, 3, vec![absent("k", old(5)), NodeItem::InventoryEnd]);
    assert_eq!(w.d.gauges().entries, 0);
    assert!(w.tell_at(link, 2, vec![told("k", old(5), true)]).is_empty());
    assert_eq!(w.found("k"), None);
}

#[test]
fn h12_a_refused_item_is_retired_only_after_the_grace() {
    let mut w = restarted(2);
    let (a, b) = (w.rejoin(1, 1), w.rejoin(2, 2));
    w.tell(b, vec![told("k", old(6), true)]);
    assert_eq!(
        w.tell(a, vec![told("k", old(5), true)]),
        [ItemResult::Refused]
    );
    w.pass(900);
    assert!(w.retired(a).is_empty());
    w.pass(100);
    assert_eq!(w.retired(a), [old(5)]);
}

#[test]
fn h13_a_put_that_was_never_acknowledged_waits_for_the_end_of_the_grace() {
    let mut w = restarted(2);
    let (a, b) = (w.rejoin(1, 1), w.rejoin(2, 2));
    w.tell(a, vec![told("k", old(5), true), NodeItem::InventoryEnd]);
    assert_eq!(
        w.tell(b, vec![told("k", old(6), false)]),
        [ItemResult::Pending]
    );
    let seq = w.last_seq(b);
    w.tell(b, vec![NodeItem::InventoryEnd]);
    assert_eq!(w.found("k"), Some(old(5)));
    w.pass(1_000);
    assert_eq!(w.found("k"), Some(old(6)));
    assert_eq!(w.retired(a), [old(5)]);
    w.tell(a, vec![absent("k", old(5))]);
    assert_eq!(w.acked(b, seq).last(), Some(&ItemResult::Ok));
}

#[test]
fn h13_a_remove_in_between_refuses_the_waiting_put() {
    let mut w = restarted(1);
    let link = w.rejoin(1, 1);
    assert_eq!(
        w.tell(link, vec![told("k", old(6), false)]),
        [ItemResult::Pending]
    );
    let seq = w.last_seq(link);
    w.tell(link, vec![NodeItem::InventoryEnd]);
    let id = w.ask(World::remove_request(&["k"], true));
    assert_eq!(w.retired(link), [old(6)]);
    w.tell(link, vec![absent("k", old(6))]);
    assert_eq!(w.removed(id), Some(vec![-704]));
    w.pass(1_000);
    assert_eq!(w.acked(link, seq).last(), Some(&ItemResult::Refused));
    assert_eq!(w.found("k"), None);
}

#[test]
fn unknown_keys_wait_for_the_inventories_of_known_nodes() {
    let mut w = restarted(2);
    assert!(!w.d.ready());
    let link = w.rejoin(1, 1);
    w.tell(link, vec![told("k", old(5), true)]);
    assert_eq!(w.found("k"), Some(old(5)));
    let locate = w.ask(World::locate_request(&["k", "late"]));
    let exists = w.ask(World::exists_request(&["late"]));
    let remove = w.ask(World::remove_request(&["none"], true));
    let reserve = w.ask(Request::Reserve {
        client: snowskin_types::id::ClientId(1),
        tenant: tenant(),
        keys: keys(&["late"]),
        items: vec![item(SIZE, 1)],
    });
    for id in [locate, exists, remove, reserve] {
        assert_eq!(w.answer(id), None);
    }
    w.tell(link, vec![NodeItem::InventoryEnd]);
    let other = w.rejoin(2, 2);
    w.tell(
        other,
        vec![told("late", old(7), true), NodeItem::InventoryEnd],
    );
    assert!(w.d.ready());
    assert!(
        matches!(w.answer(locate), Some(Reply::Located { items, .. })
        if items.iter().all(|i| matches!(i, Located::Found { .. })))
    );
    assert!(
        matches!(w.answer(exists), Some(Reply::Exists(e)) if matches!(e[0], Existing::Yes { .. }))
    );
    assert_eq!(w.removed(remove), Some(vec![-704]));
    assert!(
        matches!(w.answer(reserve), Some(Reply::Reserved { items, .. })
        if matches!(items[0], Reserved::Exists { .. }))
    );
}

#[test]
fn unknown_keys_wait_no_longer_than_a_second() {
    let mut w = restarted(1);
    let id = w.ask(World::exists_request(&["k"]));
    let gone = w.ask(World::exists_request(&["k"]));
    w.feed(crate::event::Event::Abandon { id: gone });
    w.pass(900);
    assert_eq!(w.answer(id), None);
    w.pass(100);
    assert_eq!(w.answer(id), Some(Reply::Exists(vec![Existing::No])));
    assert_eq!(w.answer(gone), None);
    assert_eq!(w.counted(Counter::Abandoned), 1);
}

#[test]
fn a_plain_remove_waits_for_the_end_of_the_grace() {
    let mut w = restarted(1);
    let link = w.rejoin(1, 1);
    w.tell(link, vec![told("k", old(5), true), NodeItem::InventoryEnd]);
    let id = w.ask(World::remove_request(&["k"], false));
    assert!(w.retired(link).is_empty());
    w.pass(1_000);
    assert_eq!(w.retired(link), [old(5)]);
    w.tell(link, vec![absent("k", old(5))]);
    assert_eq!(w.removed(id), Some(vec![0]));
}

#[test]
fn the_first_put_of_a_key_goes_on_while_a_known_node_is_away_once_that_is_marked() {
    let mut w = restarted(2);
    let link = w.rejoin(1, 1);
    w.tell(link, vec![NodeItem::InventoryEnd]);
    w.pass(1_000);
    w.hold_disk = true;
    let v = w.place("k", item(SIZE, 1));
    assert_eq!(w.tell(link, vec![publish("k", v)]), [ItemResult::Pending]);
    let seq = w.last_seq(link);
    assert_eq!(w.found("k"), Some(v));
    w.answer_disk(true);
    assert_eq!(w.acked(link, seq), [ItemResult::Pending, ItemResult::Ok]);
}

#[test]
fn inventories_carry_pins_groups_and_types() {
    let mut w = restarted(1);
    let link = w.rejoin(1, 1);
    let attributes = Attributes {
        hard_pin: true,
        soft_pin: Some(Millis(5)),
        group: Some("g".into()),
        data_type: 3,
    };
    w.tell(
        link,
        vec![with(told("k", old(5), true), attributes.clone())],
    );
    let reply = w.call(Request::StatObject {
        tenant: tenant(),
        key: name("k").key,
    });
    assert!(matches!(reply, Reply::Object(Some(o)) if o.attributes == attributes));
    assert_eq!(w.d.gauges().soft_pins, 1);
}
