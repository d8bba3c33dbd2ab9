//! Sweeping calls, reports, listings, figures.

use crate::config::Config;
use crate::effect::Counter;
use crate::event::Event;
use crate::testkit::*;
use snowskin_types::call::*;
use snowskin_types::error::Code;
use snowskin_types::link::{ItemResult, NodeItem, ToNode};

fn remove_many(filter: Filter, force: bool) -> Request {
    Request::RemoveMany {
        tenant: Some(tenant()),
        filter,
        force,
    }
}

/// Confirms every order to retire that was sent.
fn obey(w: &mut World, link: crate::event::LinkId) {
    let orders: Vec<NodeItem> = w
        .sent(link)
        .into_iter()
        .filter_map(|m| match m {
            ToNode::Retire { items, .. } => Some(items),
            _ => None,
        })
        .flatten()
        .map(|(name, version)| NodeItem::Absent { name, version })
        .collect();
    for some in orders.chunks(1000) {
        w.tell(link, some.to_vec());
    }
}

fn list(w: &mut World, filter: Filter, after: Option<&str>, limit: u32) -> (Vec<String>, bool) {
    let reply = w.call(Request::List {
        tenant: tenant(),
        filter,
        after: after.map(|a| a.as_bytes().to_vec()),
        limit,
    });
    match reply {
        Reply::Listed { keys, more } => (
            keys.iter()
                .map(|k| String::from_utf8(k.to_vec()).unwrap())
                .collect(),
            more,
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn remove_all_is_answered_when_all_owners_have_retired() {
    let (mut w, links) = World::nodes(1);
    for n in 0..1500 {
        w.put(links[0], 1, &format!("k{n}"));
    }
    w.found("k7");
    w.clear();
    let id = w.ask(remove_many(Filter::All, false));
    assert_eq!(w.answer(id), None);
    obey(&mut w, links[0]);
    assert_eq!(
        w.answer(id),
        Some(Reply::RemovedMany {
            removed: 1499,
            leased: 1
        })
    );
    let id = w.ask(remove_many(Filter::All, true));
    obey(&mut w, links[0]);
    assert!(matches!(
        w.answer(id),
        Some(Reply::RemovedMany { removed: 1, .. })
    ));
    assert_eq!(w.d.gauges().entries, 0);
}

#[test]
fn prefixes_and_patterns_remove_what_they_match() {
    let (mut w, links) = World::nodes(1);
    for k in ["a/1", "a/2", "b/1", "xb/2"] {
        w.put(links[0], 1, k);
    }
    for (filter, count) in [
        (Filter::Prefix(b"a/".to_vec()), 2),
        (Filter::Regex("b/[0-9]".into()), 2),
    ] {
        w.clear();
        let id = w.ask(remove_many(filter, false));
        obey(&mut w, links[0]);
        assert_eq!(
            w.answer(id),
            Some(Reply::RemovedMany {
                removed: count,
                leased: 0
            })
        );
    }
}

#[test]
fn a_pattern_that_is_not_allowed_is_named() {
    let (mut w, _) = World::nodes(1);
    for pattern in ["(", "a(?=b)", &"x".repeat(5000), "(((a{100}){100}){100})"] {
        let reply = w.call(remove_many(Filter::Regex(pattern.into()), false));
        let Reply::Failed(failure) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(failure.code, Code::InvalidParams);
        assert!(failure.message.contains("pattern"));
    }
}

#[test]
fn pages_of_keys_come_in_byte_order() {
    let (mut w, links) = World::nodes(1);
    for n in 0..2000 {
        w.put(links[0], 1, &format!("k{n:04}"));
    }
    let (first, more) = list(&mut w, Filter::All, None, 900);
    assert!(more);
    assert_eq!(first.len(), 900);
    assert_eq!((&*first[0], &*first[899]), ("k0000", "k0899"));
    let (next, more) = list(&mut w, Filter::Prefix(b"k1".to_vec()), Some("k1990"), 900);
    assert!(!more);
    assert_eq!(
        next,
        (1991..2000).map(|n| format!("k{n}")).collect::<Vec<_>>()
    );
    let (none, more) = list(&mut w, Filter::Regex("^z".into()), None, 5);
    assert!(none.is_empty() && !more);
    let reply = w.call(Request::List {
        tenant: tenant(),
        filter: Filter::All,
        after: None,
        limit: 0,
    });
    assert!(matches!(reply, Reply::Failed(f) if f.code == Code::InvalidParams));
}

#[test]
fn a_page_of_long_keys_ends_early_and_says_so() {
    let (mut w, links) = World::nodes(1);
    let long = "x".repeat(65_000);
    for n in 0..200 {
        w.put(links[0], 1, &format!("{n:03}{long}"));
    }
    let (mut seen, mut after) = (0, None);
    loop {
        let (page, more) = list(&mut w, Filter::All, after.as_deref(), 1000);
        assert!(page.iter().map(String::len).sum::<usize>() <= 8 << 20);
        assert!(
            page.iter()
                .enumerate()
                .all(|(i, k)| k.starts_with(&format!("{:03}", seen + i)))
        );
        seen += page.len();
        after = page.last().cloned();
        if !more {
            break;
        }
    }
    assert_eq!(seen, 200);
}

#[test]
fn a_report_hides_until_the_owner_tells_the_version_again() {
    let (mut w, links) = World::nodes(2);
    let v = w.place("k", item(SIZE, 2));
    for link in &links {
        w.tell(*link, vec![publish("k", v)]);
    }
    w.clear();
    w.report("k", v, 1, 1, Fault::Gone);
    assert_eq!(w.counted(Counter::ReportedGone), 1);
    assert!(matches!(w.locate("k"), Located::Found { replicas, .. } if replicas.len() == 1));
    let asked = |w: &World| {
        let sent = w.sent(links[0]).into_iter();
        sent.filter(|m| matches!(m, ToNode::Verify { .. })).count()
    };
    assert_eq!(asked(&w), 1);
    w.pass(1_000);
    assert_eq!(asked(&w), 3);
    assert_eq!(w.tell(links[0], vec![publish("k", v)]), [ItemResult::Ok]);
    assert!(matches!(w.locate("k"), Located::Found { replicas, .. } if replicas.len() == 2));
    w.pass(1_000);
    assert_eq!(asked(&w), 3);
}

#[test]
fn an_inventory_does_not_clear_a_replica_reported_bad() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.report("k", v, 1, 1, Fault::Gone);
    w.report("k", v, 1, 1, Fault::Bad);
    w.lose(links[0]);
    let link = w.rejoin(1, 1);
    w.tell(link, vec![told("k", v, true), NodeItem::InventoryEnd]);
    assert_eq!(w.exists("k"), Existing::No);
    let bad = NodeItem::Retract {
        name: name("k"),
        version: v,
        bad: true,
    };
    assert_eq!(
        w.tell(link, vec![bad, absent("k", v)]),
        [ItemResult::Ok, ItemResult::Ok]
    );
    assert_eq!(w.d.gauges().entries, 0);
}

#[test]
fn reports_about_other_versions_epochs_and_keys_are_noted_only() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.report("k", version(1, 99), 1, 1, Fault::Bad);
    w.report("k", v, 1, 2, Fault::Bad);
    w.report("none", v, 1, 1, Fault::Bad);
    w.report("k", v, 9, 1, Fault::Bad);
    assert_eq!(w.found("k"), Some(v));
}

#[test]
fn a_bad_replica_may_go_under_a_lease() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.found("k");
    let bad = NodeItem::Retract {
        name: name("k"),
        version: v,
        bad: true,
    };
    assert_eq!(w.tell(links[0], vec![bad]), [ItemResult::Ok]);
    assert_eq!(w.exists("k"), Existing::No);
}

#[test]
fn full_maps_refuse_instead_of_growing() {
    let config = Config {
        waits_max: 1,
        parked_max: 1,
        hidden_max: 1,
        ..Config::default()
    };
    let mut w = World::with_config(2, vec![known(9, 9, None)], config);
    let first = w.ask(World::exists_request(&["k"]));
    let reply = w.call(World::exists_request(&["k"]));
    assert!(matches!(reply, Reply::Failed(f) if f.code == Code::UnavailableInStatus));
    w.join(9, 10);
    assert!(w.answer(first).is_some());
    w.pass(1_000);
    let link = w.join(1, 1);
    let versions: Vec<_> = ["a", "b"].iter().map(|k| w.put(link, 1, k)).collect();
    let id = w.ask(World::remove_request(&["a"], true));
    assert_eq!(w.answer(id), None);
    let id = w.ask(World::remove_request(&["b"], true));
    assert_eq!(w.removed(id), Some(vec![-1010]));
    assert_eq!(w.found("b"), Some(versions[1]));
    let c = w.put(link, 1, "c");
    w.report("b", versions[1], 1, 1, Fault::Gone);
    let reply = w.call(Request::Report {
        tenant: tenant(),
        key: name("c").key,
        version: c,
        node: node_id(1),
        epoch: snowskin_types::id::Epoch(1),
        fault: Fault::Gone,
    });
    assert!(matches!(reply, Reply::Failed(f) if f.code == Code::UnavailableInStatus));
}

#[test]
fn an_abandoned_remove_goes_on_without_an_answer() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    let id = w.ask(World::remove_request(&["k"], true));
    w.feed(Event::Abandon { id });
    w.tell(links[0], vec![absent("k", v)]);
    assert_eq!(w.answer(id), None);
    assert_eq!(w.d.gauges().entries, 0);
}

#[test]
fn figures_follow_puts_leases_and_evictions() {
    let (mut w, links) = World::nodes(1);
    let a = w.put(links[0], 1, "a");
    w.put(links[0], 1, "b");
    w.found("b");
    w.place("c", item(SIZE, 1));
    let stat = w.d.stat();
    assert_eq!(
        (stat.objects, stat.bytes, stat.leased, stat.unfinished),
        (2, 2 * SIZE, SIZE, 1)
    );
    assert_eq!(stat.nodes[0].replicas, 2);
    w.tell(links[0], vec![retract("a", a)]);
    w.pass(11_000);
    let stat = w.d.stat();
    assert_eq!((stat.objects, stat.leased), (1, 0));
    let reply = w.call(Request::StatObject {
        tenant: tenant(),
        key: name("a").key,
    });
    assert!(matches!(reply, Reply::Object(Some(o)) if o.replicas[0].state == "retiring"));
    let reply = w.call(Request::StatObject {
        tenant: tenant(),
        key: name("none").key,
    });
    assert_eq!(reply, Reply::Object(None));
}

#[test]
fn remembering_is_bounded_while_a_node_stays_away() {
    let config = Config {
        bare_max: 10,
        ..Config::default()
    };
    let mut w = World::with_config(3, vec![known(1, 1, None)], config);
    w.pass(6_000);
    for n in 0..12 {
        let id = w.ask(World::remove_request(&[&format!("k{n}")], true));
        assert!(w.removed(id).is_some());
    }
    w.pass(200);
    assert_eq!(w.d.gauges().entries, 0);
    // What was forgotten is refused as a whole.
    let link = w.rejoin(1, 1);
    assert_eq!(
        w.tell(link, vec![told("k3", version(2, 1), true)]),
        [ItemResult::Refused]
    );
}

#[test]
fn the_same_events_give_the_same_effects() {
    let run = || {
        let (mut w, links) = World::nodes(5);
        for n in 0..200 {
            let (_, _) = w.reserve(&[&format!("k{n}")], item(SIZE, 2));
        }
        w.lose(links[2]);
        w.pass(5_000);
        w.effects
    };
    assert_eq!(run(), run());
}

#[test]
fn a_node_that_is_silent_on_an_open_connection_is_forgotten_too() {
    let (mut w, links) = World::nodes(1);
    w.put(links[0], 1, "k");
    w.pongs.clear();
    w.pass(601_000);
    assert_eq!(w.counted(Counter::NodesForgotten), 1);
    assert!(w.d.stat().nodes.is_empty());
}

#[test]
fn a_sweep_also_waits_for_owners_of_what_was_evicted_before() {
    let (mut w, links) = World::nodes(1);
    let v = w.put(links[0], 1, "k");
    w.tell(links[0], vec![retract("k", v)]);
    let id = w.ask(remove_many(Filter::All, true));
    assert_eq!(w.answer(id), None);
    assert_eq!(w.retired(links[0]), [v]);
    w.tell(links[0], vec![absent("k", v)]);
    assert!(matches!(
        w.answer(id),
        Some(Reply::RemovedMany { removed: 0, .. })
    ));
}
