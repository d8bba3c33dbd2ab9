//! Put, get, evict, remove on live nodes.

use crate::effect::Counter;
use crate::testkit::*;
use snowskin_types::call::*;
use snowskin_types::error::{Code, Stage};
use snowskin_types::link::{ItemResult, ToNode};
use snowskin_types::time::Millis;

#[test]
fn a_put_is_readable_from_its_publish_on() {
    let (mut w, links) = World::nodes(1);
    let v = w.place("k", item(SIZE, 1));
    assert_eq!(w.found("k"), None);
    assert_eq!(w.exists("k"), Existing::No);
    assert_eq!(w.tell(links[0], vec![publish("k", v)]), [ItemResult::Ok]);
    match w.locate("k") {
        Located::Found {
            version,
            shape,
            lease,
            replicas,
        } => {
            assert_eq!((version, shape.size, lease), (v, SIZE, TTL));
            assert_eq!(replicas.len(), 1);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        w.exists("k"),
        Existing::Yes {
            lease: TTL,
            size: SIZE
        }
    ));
}

#[test]
fn the_first_of_two_equal_keys_in_a_batch_wins() {
    let (mut w, _) = World::nodes(1);
    let (items, _) = w.reserve(&["a", "b", "a"], item(SIZE, 1));
    let Reserved::Placed { version, .. } = items[0] else {
        panic!("{items:?}");
    };
    assert!(matches!(items[1], Reserved::Placed { .. }));
    assert_eq!(
        items[2],
        Reserved::Exists {
            version,
            unfinished: true
        }
    );
}

#[test]
fn replicas_go_to_distinct_nodes_and_fewer_are_allowed() {
    let (mut w, _) = World::nodes(3);
    let (items, places) = w.reserve(&["k"], item(SIZE, 5));
    let Reserved::Placed { places: at, .. } = &items[0] else {
        panic!("{items:?}");
    };
    assert_eq!(at.len(), 3);
    let mut distinct = places.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 3);
}

#[test]
fn what_can_never_fit_is_refused_with_the_largest_size() {
    let (mut w, _) = World::nodes(1);
    for (it, code) in [
        (item(CAPACITY + 1, 1), Code::InvalidParams),
        (item(0, 1), Code::InvalidParams),
        (item(SIZE, 0), Code::InvalidParams),
    ] {
        let wanted = it.size;
        let (items, _) = w.reserve(&["k"], it);
        let Reserved::Failed(failure) = &items[0] else {
            panic!("{items:?}");
        };
        assert_eq!(failure.code, code);
        assert!(failure.key.is_some());
        if wanted > CAPACITY {
            assert_eq!(failure.detail.unwrap().largest, CAPACITY);
        }
    }
}

#[test]
fn without_nodes_there_is_no_space() {
    let mut w = World::new();
    let (items, _) = w.reserve(&["k"], item(SIZE, 1));
    assert!(matches!(&items[0], Reserved::Failed(f) if f.code == Code::NoSpace));
}

#[test]
fn preferred_nodes_come_first_and_avoided_ones_never() {
    let (mut w, _) = World::nodes(3);
    for n in 0..20 {
        let mut it = item(SIZE, 1);
        it.preferred = vec![node_id(2)];
        let (_, places) = w.reserve(&[&format!("p{n}")], it);
        assert_eq!(places, [node_id(2)]);
        let mut it = item(SIZE, 3);
        it.avoid = vec![node_id(2)];
        let (_, places) = w.reserve(&[&format!("a{n}")], it);
        assert_eq!(places.len(), 2);
        assert!(!places.contains(&node_id(2)));
    }
}

#[test]
fn an_existing_key_answers_exists_with_its_version() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    let (items, _) = w.reserve(&["k"], item(SIZE, 1));
    assert_eq!(
        items[0],
        Reserved::Exists {
            version: v,
            unfinished: false
        }
    );
}

#[test]
fn an_unfinished_put_blocks_others_until_it_is_discarded_and_then_retired() {
    let (mut w, links) = World::nodes(1);
    let v = w.place("k", item(SIZE, 1));
    w.pass(29_900);
    let (items, _) = w.reserve(&["k"], item(SIZE, 1));
    assert!(matches!(
        items[0],
        Reserved::Exists {
            unfinished: true,
            ..
        }
    ));
    w.pass(200);
    assert_eq!(w.retired(links[0]).first(), Some(&v));
    assert_eq!(w.counted(Counter::PutDiscarded), 1);
    let v2 = w.place("k", item(SIZE, 1));
    assert!(v2 > v);
    assert_eq!(
        w.tell(links[0], vec![publish("k", v)]),
        [ItemResult::Refused]
    );
    assert_eq!(
        w.tell(links[0], vec![absent("k", v), publish("k", v2)]),
        [ItemResult::Ok, ItemResult::Ok]
    );
}

#[test]
fn a_lease_and_a_hard_pin_refuse_a_retract_and_its_end_grants_it() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.found("k");
    w.pass(4_000);
    assert_eq!(
        w.tell(links[0], vec![retract("k", v)]),
        [ItemResult::Leased(Millis(6_000))]
    );
    w.pass(6_000);
    assert_eq!(w.tell(links[0], vec![retract("k", v)]), [ItemResult::Ok]);
    assert_eq!(w.exists("k"), Existing::No);
    assert_eq!(w.counted(Counter::RetractGranted), 1);
    let mut it = item(SIZE, 1);
    it.attributes.hard_pin = true;
    let v = w.place("pinned", it.clone());
    let published = with(publish("pinned", v), it.attributes);
    assert_eq!(w.tell(links[0], vec![published]), [ItemResult::Ok]);
    assert!(matches!(
        w.tell(links[0], vec![retract("pinned", v)])[..],
        [ItemResult::Held(_)]
    ));
    assert_eq!(w.d.gauges().hard_pins, 1);
}

#[test]
fn an_evicted_key_is_forgotten_when_its_owner_says_absent() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    assert_eq!(w.tell(links[0], vec![retract("k", v)]), [ItemResult::Ok]);
    assert_eq!(w.d.gauges().entries, 1);
    w.tell(links[0], vec![absent("k", v)]);
    assert_eq!(w.d.gauges().entries, 0);
}

#[test]
fn a_remove_is_answered_when_the_owner_has_retired() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    let id = w.ask(World::remove_request(&["k"], false));
    assert_eq!(w.answer(id), None);
    assert_eq!(w.retired(links[0]), [v]);
    assert_eq!(w.exists("k"), Existing::No);
    w.tell(links[0], vec![absent("k", v)]);
    assert_eq!(w.removed(id), Some(vec![0]));
    assert_eq!(w.d.gauges().entries, 0);
    assert_eq!(w.marks(), 0);
}

#[test]
fn a_plain_remove_is_refused_under_a_lease_and_a_forced_one_is_not() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.found("k");
    let id = w.ask(World::remove_request(&["k", "none"], false));
    assert_eq!(w.removed(id), Some(vec![-706, -704]));
    let Some(Reply::Removed(refused)) = w.answer(id) else {
        panic!("no answer");
    };
    let stages = refused.into_iter().map(|r| r.map_err(|f| f.stage));
    assert!(
        stages.eq([Err(Stage::Locate); 2]),
        "nothing was touched, published or retracted"
    );
    let id = w.ask(World::remove_request(&["k"], true));
    w.tell(links[0], vec![absent("k", v)]);
    assert_eq!(w.removed(id), Some(vec![0]));
}

#[test]
fn an_order_to_retire_is_repeated_until_it_is_confirmed() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.ask(World::remove_request(&["k"], false));
    w.pass(2_000);
    assert!(w.retired(links[0]).len() >= 4);
    w.tell(links[0], vec![absent("k", v)]);
    w.clear();
    w.pass(2_000);
    assert!(w.retired(links[0]).is_empty());
}

#[test]
fn a_replace_is_answered_when_the_old_version_is_retired() {
    let (mut w, links) = World::nodes(2);
    let v1 = w.put(links[0], 1, "k");
    w.found("k");
    let v2 = w.replace_at(2, "k");
    assert_eq!(w.found("k"), Some(v1));
    w.clear();
    assert_eq!(
        w.tell(links[1], vec![publish("k", v2)]),
        [ItemResult::Pending]
    );
    let seq = w.last_seq(links[1]);
    // It is visible at once, the lease of readers does not hold it up.
    assert_eq!(w.found("k"), Some(v2));
    assert_eq!(w.retired(links[0]), [v1]);
    w.tell(links[0], vec![absent("k", v1)]);
    assert_eq!(
        w.acked(links[1], seq),
        [ItemResult::Pending, ItemResult::Ok]
    );
}

#[test]
fn a_pending_publish_that_is_sent_again_is_answered_under_its_last_number() {
    let (mut w, links) = World::nodes(2);
    let v1 = w.put(links[0], 1, "k");
    let v2 = w.replace_at(2, "k");
    w.tell(links[1], vec![publish("k", v2)]);
    let first = w.last_seq(links[1]);
    w.tell(links[1], vec![publish("k", v2)]);
    let second = w.last_seq(links[1]);
    w.clear();
    w.tell(links[0], vec![absent("k", v1)]);
    assert!(w.acked(links[1], first).is_empty());
    assert_eq!(w.acked(links[1], second), [ItemResult::Ok]);
}

#[test]
fn of_two_overlapping_puts_the_later_version_wins() {
    let (mut w, links) = World::nodes(1);
    w.put(links[0], 1, "k");
    let a = w.replace_at(1, "k");
    let b = w.replace_at(1, "k");
    assert_eq!(
        w.tell(links[0], vec![publish("k", b)]),
        [ItemResult::Pending]
    );
    assert_eq!(
        w.tell(links[0], vec![publish("k", a)]),
        [ItemResult::Refused]
    );
    assert_eq!(w.found("k"), Some(b));
}

#[test]
fn a_cancel_kills_the_version_unless_it_was_published() {
    let (mut w, links) = World::nodes(2);
    let v = w.place("k", item(SIZE, 2));
    w.tell(links[0], vec![publish("k", v)]);
    let dead = w.place("d", item(SIZE, 1));
    let reply = w.call(Request::Cancel {
        tenant: tenant(),
        keys: keys(&["k", "d", "none"]),
        versions: vec![v, dead, v],
    });
    assert_eq!(
        reply,
        Reply::Cancelled(vec![
            Cancelled::Published,
            Cancelled::Ended,
            Cancelled::Ended
        ])
    );
    let retired: Vec<_> = links.iter().flat_map(|l| w.retired(*l)).collect();
    assert_eq!(retired, [dead]);
    let owner = links.iter().find(|l| !w.retired(**l).is_empty()).unwrap();
    assert_eq!(
        w.tell(*owner, vec![publish("d", dead)]),
        [ItemResult::Refused]
    );
    assert_eq!(w.exists("d"), Existing::No);
}

#[test]
fn a_failed_write_ends_its_placement() {
    let (mut w, links) = World::nodes(1);
    let v = w.place("k", item(SIZE, 1));
    w.tell(links[0], vec![absent("k", v)]);
    assert_eq!(w.d.stat().unfinished, 0);
    assert_eq!(w.counted(Counter::PutDiscarded), 1);
    w.place("k", item(SIZE, 1));
}

#[test]
fn existence_checks_alone_stop_prolonging_after_six_leases() {
    let (mut w, links) = World::nodes(1);
    w.put(links[0], 1, "k");
    w.pass(55_000);
    assert!(matches!(
        w.exists("k"),
        Existing::Yes {
            lease: Millis(5_000),
            ..
        }
    ));
    w.pass(5_000);
    assert!(matches!(
        w.exists("k"),
        Existing::Yes {
            lease: Millis(0),
            ..
        }
    ));
    assert_eq!(w.counted(Counter::ExistsCap), 1);
    w.found("k");
    assert!(matches!(w.exists("k"), Existing::Yes { lease: TTL, .. }));
}

#[test]
fn a_client_can_ask_for_a_shorter_lease_but_not_for_a_longer_one() {
    let (mut w, links) = World::nodes(1);
    w.put(links[0], 1, "k");
    for (wish, got) in [(100, Millis(100)), (1_000_000, TTL)] {
        let reply = w.call(Request::Exists {
            tenant: tenant(),
            keys: keys(&["k"]),
            lease: Some(Millis(wish)),
        });
        assert!(
            matches!(&reply, Reply::Exists(e) if matches!(e[0], Existing::Yes { lease, .. } if lease == got))
        );
    }
}

#[test]
fn a_lease_on_one_member_covers_its_group_and_a_retract_names_the_others() {
    let (mut w, links) = World::nodes(1);
    let mut it = item(SIZE, 1);
    it.attributes.group = Some("g".into());
    let versions: Vec<_> = ["a", "b"]
        .iter()
        .map(|k| {
            let v = w.place(k, it.clone());
            w.tell(links[0], vec![with(publish(k, v), it.attributes.clone())]);
            v
        })
        .collect();
    w.found("a");
    assert!(matches!(
        w.tell(links[0], vec![retract("b", versions[1])])[..],
        [ItemResult::Leased(_)]
    ));
    w.pass(10_000);
    w.clear();
    assert_eq!(
        w.tell(links[0], vec![retract("b", versions[1])]),
        [ItemResult::Ok]
    );
    let next = w.sent(links[0]).into_iter().find_map(|m| match m {
        ToNode::EvictNext { items, .. } => Some(items),
        _ => None,
    });
    assert_eq!(next, Some(vec![(name("a"), versions[0])]));
}

#[test]
fn a_batch_that_is_too_long_or_uneven_is_refused() {
    let (mut w, _) = World::nodes(1);
    let many: Vec<String> = (0..65_537).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let reply = w.call(World::exists_request(&many));
    assert!(matches!(reply, Reply::Failed(f) if f.code == Code::InvalidParams));
    let reply = w.call(Request::Reserve {
        client: ClientId(1),
        tenant: tenant(),
        keys: keys(&["a", "b"]),
        items: vec![item(SIZE, 1)],
    });
    assert!(matches!(reply, Reply::Failed(f) if f.code == Code::InvalidParams));
}

#[test]
fn a_large_batch_is_worked_off_in_slices_and_answered_in_order() {
    let (mut w, links) = World::nodes(1);
    w.put(links[0], 1, "7777");
    let many: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    match w.call(World::exists_request(&many)) {
        Reply::Exists(items) => {
            assert_eq!(items.len(), 20_000);
            let yes: Vec<_> = items.iter().positions_yes();
            assert_eq!(yes, [7777]);
        }
        other => panic!("{other:?}"),
    }
}

trait PositionsYes {
    fn positions_yes(self) -> Vec<usize>;
}

impl<'a, I: Iterator<Item = &'a Existing>> PositionsYes for I {
    fn positions_yes(self) -> Vec<usize> {
        let all = self.enumerate();
        all.filter(|(_, e)| matches!(e, Existing::Yes { .. }))
            .map(|(at, _)| at)
            .collect()
    }
}

use snowskin_types::id::ClientId;

#[test]
fn a_replace_keeps_the_promise_to_readers_of_the_key() {
    let (mut w, links) = World::nodes(2);
    let v1 = w.put(links[0], 1, "k");
    w.found("k");
    let v2 = w.replace_at(2, "k");
    w.tell(links[1], vec![publish("k", v2)]);
    w.tell(links[0], vec![absent("k", v1)]);
    assert_eq!(
        w.tell(links[1], vec![retract("k", v2)]),
        [ItemResult::Leased(TTL)]
    );
}

#[test]
fn a_put_whose_publish_waits_is_neither_ended_nor_successful_yet() {
    let (mut w, links) = World::nodes(2);
    let v1 = w.put(links[0], 1, "k");
    let v2 = w.replace_at(2, "k");
    w.tell(links[1], vec![publish("k", v2)]);
    let cancel = || Request::Cancel {
        tenant: tenant(),
        keys: keys(&["k"]),
        versions: vec![v2],
    };
    let reply = w.call(cancel());
    assert!(matches!(reply, Reply::Cancelled(c) if matches!(&c[0], Cancelled::Failed(_))));
    let (items, _) = w.reserve(&["k"], item(SIZE, 1));
    assert_eq!(
        items[0],
        Reserved::Exists {
            version: v2,
            unfinished: true
        }
    );
    w.tell(links[0], vec![absent("k", v1)]);
    assert_eq!(
        w.call(cancel()),
        Reply::Cancelled(vec![Cancelled::Published])
    );
}
